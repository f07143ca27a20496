// SPDX-License-Identifier: MIT OR Apache-2.0
//! Simulations of the scheduler, each in a process of its own.

use std::process::Command;

fn simulate(kind: &str, seeds: u64, numbers: &[u64]) {
    for seed in 1..=seeds {
        let mut command = Command::new(env!("CARGO_BIN_EXE_simulate"));
        command.arg(kind).arg(seed.to_string()).args(numbers.iter().map(u64::to_string));
        let output = command.output().expect("the simulation runs");
        let told = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{command:?}: {}\n{told}", output.status);
    }
}

#[test]
fn one_cpu() {
    simulate("random", 20, &[1, 4, 5000]);
}

#[test]
fn two_cpus() {
    simulate("random", 20, &[2, 3, 5000]);
    simulate("random", 20, &[2, 5, 5000]);
}

#[test]
fn three_cpus() {
    simulate("random", 20, &[3, 4, 5000]);
    simulate("random", 20, &[3, 6, 5000]);
}

#[test]
fn four_cpus() {
    simulate("random", 20, &[4, 9, 5000]);
}

#[test]
fn first_in_first_out() {
    simulate("lists", 20, &[6, 20_000]);
}
