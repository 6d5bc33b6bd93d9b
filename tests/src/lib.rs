//! gradloom-tests holds no code of its own: see `it/` for the one integration binary.
