// SPDX-License-Identifier: MIT OR Apache-2.0
//! Extended state (x87, SSE, AVX, AVX-512) of programs, in the standard format of XSAVE
//! (Intel SDM vol. 1, 13.4; APM vol. 1, 11.5).

/// Bytes of the extended state on this CPU (CPUID 0xd.0 EBX), or 512 without XSAVE.
pub fn size() -> usize {
    unimplemented!()
}

/// The enabled components (XCR0), or 3 without XSAVE.
pub fn features() -> u64 {
    unimplemented!()
}

/// Copies the current thread's state to `image` ([`size`] bytes), for a signal frame.
pub fn save(_image: &mut [u8]) {
    unimplemented!()
}

/// Loads the current thread's state from `image`, which is an allegation: reserved bits are cleared.
/// `false` if it is not a valid image; the state is then unchanged.
pub fn restore(_image: &[u8]) -> bool {
    unimplemented!()
}

/// Gives the current thread the initial state that Linux gives a program (FCW 0x37f, MXCSR 0x1f80).
pub fn reset() {
    unimplemented!()
}
