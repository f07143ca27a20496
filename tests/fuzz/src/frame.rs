// SPDX-License-Identifier: MIT OR Apache-2.0
//! Frames of signals, which lie in the memory of the program.

use bolero::TypeGenerator;
use crtos_abi::UserAddr;
use crtos_signal::frame::{
    CONTEXT, DESCRIBED, DESCRIPTION, Frame, READ, SIZE, STATE_TAIL, describe_state, is_described,
    place,
};

use crate::numbers::Word;

/// A frame that a program leaves, and where one is put.
#[derive(Clone, Debug, TypeGenerator)]
pub struct Input {
    words: [u64; READ / 8],
    top: Word,
    /// Bytes of extended state beyond the legacy area and its header.
    more: u16,
    features: u64,
    /// A byte of the extended state that the program changes, and how.
    change: (u16, u8),
    /// What is left of the image.
    length: u16,
}

/// Runs the target.
pub fn frame(input: &Input) {
    read(input);
    placed(input);
    described(input);
}

/// What is read is what lies there, and is written to the same places.
fn read(input: &Input) {
    let mut bytes = [0; READ];
    for (to, word) in bytes.chunks_exact_mut(8).zip(input.words) {
        to.copy_from_slice(&word.to_le_bytes());
    }
    let frame = Frame::from_bytes(&bytes);
    let words = frame.to_words();
    let mut again = [0; READ];
    for (to, word) in again.chunks_exact_mut(8).zip(words) {
        to.copy_from_slice(&word.to_le_bytes());
    }
    assert_eq!(Frame::from_bytes(&again), frame, "a frame changes when it is written and read");
    // All words that mean something are taken, and each to its own place.
    let link = CONTEXT as usize / 8 + 1;
    let is_unused = |index: usize| index == link || (30..38).contains(&index);
    for (index, (new, old)) in words.iter().zip(input.words).enumerate() {
        let mask = if index == link + 2 { u64::from(u32::MAX) } else { u64::MAX };
        let expected = if is_unused(index) { 0 } else { old & mask };
        assert_eq!(*new, expected, "word {index}");
    }
}

/// A frame lies below the top, as the processor and the ABI want it, and its parts do not overlap.
fn placed(input: &Input) {
    let (top, state_size) = (UserAddr::new(input.top.value()), 576 + usize::from(input.more));
    let Some(place) = place(top, state_size) else {
        let most = UserAddr::new((state_size + STATE_TAIL + SIZE + 128) as u64);
        assert!(top < most, "no room below {top:#x}");
        return;
    };
    assert_eq!(place.frame.offset_in(16), 8);
    assert_eq!(place.state.offset_in(64), 0);
    let state_end = place.state.checked_add((state_size + STATE_TAIL) as u64);
    assert!(state_end.is_some_and(|end| end <= top), "{place:x?} reaches beyond {top:#x}");
    let frame_end = place.frame.checked_add(SIZE as u64);
    assert!(frame_end.is_some_and(|end| end <= place.state), "{place:x?} overlap");
}

/// A description is known again, and not if what identifies it was changed.
fn described(input: &Input) {
    let size = 576 + usize::from(input.more) % 2048;
    let mut image = vec![0x5a; size + STATE_TAIL];
    assert!(!is_described(&image, size));
    describe_state(&mut image, size, input.features);
    assert!(is_described(&image, size));
    let (at, byte) = (usize::from(input.change.0) % image.len(), input.change.1);
    let is_same = image[at] == byte;
    image[at] = byte;
    let identifies = (DESCRIPTION..DESCRIPTION + 4).contains(&at)
        || (DESCRIPTION + 16..DESCRIPTION + DESCRIBED).contains(&at)
        || at >= size;
    assert_eq!(is_described(&image, size), is_same || !identifies, "byte {at}");
    let length = usize::from(input.length) % image.len();
    assert!(!is_described(&image[..length], size), "{length} bytes of {}", image.len());
}
