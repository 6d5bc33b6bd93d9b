//! gradloom-tests.
