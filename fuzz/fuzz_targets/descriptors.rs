#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| pfp_tests::fuzz::descriptors(input));
