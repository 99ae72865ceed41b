//! memfit-testkit
