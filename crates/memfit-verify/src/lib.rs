//! memfit-verify
