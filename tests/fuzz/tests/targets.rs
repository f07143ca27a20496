// SPDX-License-Identifier: MIT OR Apache-2.0
//! Each target, with a number of random inputs that takes a few seconds. `BOLERO_RANDOM_ITERATIONS`
//! sets another number; `BOLERO_RANDOM_SEED`, which a failure prints, repeats one input.

use bolero::check;
use crtos_fuzz::{acpi, channel, decoder, executable, frame, inet, iommu, script};

#[test]
fn channel() {
    check!().with_iterations(2_000).with_type().for_each(channel::channel);
}

#[test]
fn decoder() {
    check!().with_iterations(20_000).with_type().for_each(decoder::decoder);
}

#[test]
fn executable() {
    check!().with_iterations(60_000).with_type().for_each(executable::executable);
}

#[test]
fn stack() {
    check!().with_iterations(5_000).with_type().for_each(executable::stack);
}

#[test]
fn frame() {
    check!().with_iterations(10_000).with_type().for_each(frame::frame);
}

#[test]
fn script() {
    check!().with_iterations(20_000).with_type().for_each(script::script);
}

#[test]
fn acpi() {
    check!().with_iterations(20_000).with_type().for_each(acpi::acpi);
}

#[test]
fn iommu() {
    check!().with_iterations(20_000).with_type().for_each(iommu::iommu);
}

#[test]
fn inet() {
    check!().with_iterations(5_000).with_type().for_each(inet::inet);
}
