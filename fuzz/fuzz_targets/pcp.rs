#![no_main]

use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};

fuzz_target!(|data: &[u8]| weir_fuzzing::pcp(data));

// Every other change is one of whole messages.
fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    if seed % 2 == 0 {
        return fuzzer_mutate(data, size, max_size);
    }
    let mutated = weir_fuzzing::mutate(&data[..size], &data[..size], max_size, u64::from(seed));
    data[..mutated.len()].copy_from_slice(&mutated);
    mutated.len()
});
