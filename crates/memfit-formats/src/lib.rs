//! memfit-formats
