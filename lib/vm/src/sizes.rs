// SPDX-License-Identifier: MIT OR Apache-2.0
//! Classes of the sizes of pieces of a heap.
//!
//! Where each piece that is in use has the size of a class, what is free can be kept by classes,
//! and the first one that is found in a class is large enough: nobody looks through pieces that are
//! slightly too small.

/// Sizes are multiples of this.
pub const UNIT: usize = 32;

/// Up to this size each multiple is a class.
const LINEAR: usize = 1024;
/// The class of that size.
const LAST_LINEAR: u32 = (LINEAR / UNIT) as u32 - 1;
/// Beyond it, classes from one power of two to the next one.
const CLASSES: u32 = 16;

/// The largest class whose size is at most `size`, which is at least [`UNIT`].
pub const fn class(size: usize) -> u32 {
    if size <= LINEAR {
        return (size / UNIT) as u32 - 1;
    }
    let power = size.ilog2();
    let part = (size >> (power - CLASSES.ilog2())) as u32 - CLASSES;
    LAST_LINEAR + (power - LINEAR.ilog2()) * CLASSES + part
}

/// The smallest class whose size is at least `size`.
pub const fn class_for(size: usize) -> u32 {
    if size <= UNIT { 0 } else { class(size - 1) + 1 }
}

/// The size of a class.
pub const fn size_of_class(class: u32) -> usize {
    if class <= LAST_LINEAR {
        return (class as usize + 1) * UNIT;
    }
    let (powers, part) = ((class - LAST_LINEAR) / CLASSES, (class - LAST_LINEAR) % CLASSES);
    ((CLASSES + part) as usize) << (powers + LINEAR.ilog2() - CLASSES.ilog2())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_in_their_classes() {
        for size in UNIT..=5 << 20 {
            let (below, above) = (class(size), class_for(size));
            assert!(size_of_class(below) <= size && size < size_of_class(below + 1));
            assert!(size_of_class(above) >= size && above <= below + 1);
            assert_eq!(size_of_class(below) == size, above == below);
        }
    }

    #[test]
    fn classes_are_units_apart_and_lose_little() {
        for class in 0..class(4 << 20) {
            let (size, next) = (size_of_class(class), size_of_class(class + 1));
            assert!(size.is_multiple_of(UNIT) && next > size);
            assert!(size < LINEAR && next == size + UNIT || next - size <= size / 16);
        }
    }
}
