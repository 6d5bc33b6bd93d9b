//! gradloom-web.
