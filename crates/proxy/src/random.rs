//! Bytes nobody can guess, from the system.

/// # Panics
/// When the system has no random numbers: keys and nonces made without them would be a lie.
pub(crate) fn fill(bytes: &mut [u8]) {
    if let Err(error) = getrandom::fill(bytes) {
        panic!("the system gives no random numbers: {error}");
    }
}
