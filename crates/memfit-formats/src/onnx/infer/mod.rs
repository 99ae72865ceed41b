//! Shape inference, one file for each family of operators. The table is in [`super::operators`].

pub(super) mod attention;
pub(super) mod conv;
pub(super) mod elementwise;
pub(super) mod index;
pub(super) mod layout;
pub(super) mod linear;
pub(super) mod norm;
pub(super) mod quant;
pub(super) mod random;
pub(super) mod recurrent;
pub(super) mod reduce;
pub(super) mod resize;
pub(super) mod shapes;
