//! Black-box tests of the `weir` binary live in `tests/`.
