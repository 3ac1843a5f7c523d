#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ironkeeper_fuzz::run("link", bytes));
