//! memfit
