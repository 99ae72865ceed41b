//! A short run of the hammer.

use memfit_fuzz::hammer;

#[test]
fn the_verifier_and_real_bytes_agree() {
    let report = hammer::run(50_000, 1);
    report.verdict().unwrap_or_else(|error| panic!("{report}\n{error}"));
}
