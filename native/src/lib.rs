//! gradloom.
