// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the person in front of the terminal sees while a step runs.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

/// Set by `-v`: tell every step, also into a file or pipe.
static VERBOSE: AtomicBool = AtomicBool::new(false);

/// The lines of all steps.
static BARS: LazyLock<MultiProgress> = LazyLock::new(MultiProgress::new);

/// Chooses whether steps are told when standard error is no terminal.
pub fn set_verbose(on: bool) {
    VERBOSE.store(on, Ordering::Relaxed);
}

/// A step that takes a while; its line vanishes when it is dropped.
pub struct Step {
    bar: ProgressBar,
    name: String,
    start: Instant,
}

/// Starts a step.
pub fn step(name: impl Into<String>) -> Step {
    let name = name.into();
    let bar = BARS.add(ProgressBar::new_spinner());
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} ({elapsed})") {
        bar.set_style(style);
    }
    bar.set_message(name.clone());
    bar.enable_steady_tick(Duration::from_millis(200));
    Step { bar, name, start: Instant::now() }
}

impl Drop for Step {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
        if VERBOSE.load(Ordering::Relaxed) {
            eprintln!("{}: {:.1} s", self.name, self.start.elapsed().as_secs_f64());
        }
    }
}
