// SPDX-License-Identifier: MIT OR Apache-2.0
//! Builds everything, boots the guest, runs the tests. `./x` runs this.

mod apt;
mod bench;
mod bochs;
mod bootstrap;
mod deb;
mod demo;
mod disk;
mod flat;
mod foreign;
mod image;
mod initramfs;
mod install;
mod iommu;
mod kernels;
mod layer;
mod lint;
mod mesa;
mod module;
mod newest;
mod parts;
mod paths;
mod processor;
mod programs;
mod progress;
mod qemu;
mod quote;
mod run;
mod setup;
mod test;
mod toolchain;
mod tsc;
mod vfio_user;
mod vm;
mod vm_command;
mod vmlinux;

use std::fs;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};

/// Builds crtos, boots it in an emulated machine, tests it.
#[derive(Parser)]
#[command(name = "x", bin_name = "./x", version)]
struct Arguments {
    /// Tell every step, also when standard error is no terminal.
    #[arg(short, long, global = true)]
    verbose: bool,
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Install what is missing on this machine, and fill the cache.
    Setup,
    /// Build into the staging tree, target/crtos.
    Build {
        /// The parts to build; all if none.
        parts: Vec<parts::Part>,
    },
    /// Build, and install what was built: `make install DESTDIR= PREFIX=`.
    Install(install::Options),
    /// Make Debian packages in target/deb: crtos, crtos-dkms, crtos-doc.
    Deb,
    /// Show the system at work: build, boot, run Debian's busybox in the realm.
    Run,
    /// Check formatting, lints and style.
    Lint,
    /// Remove what builds made.
    Clean {
        /// Also the cache: guest images, kernels, Rust's library.
        #[arg(long)]
        cache: bool,
    },
    /// Run the tests.
    Test(test::Options),
    /// Measure the realm and Linux side by side, in virtual time.
    Bench(bench::Options),
    /// Boot a guest and run a command in it.
    Vm(vm_command::Options),
}

/// Exit status when the harness itself fails.
pub const FAILURE: u8 = 125;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    progress::set_verbose(arguments.verbose);
    match act(arguments.action) {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            eprintln!("x: {error:#}");
            ExitCode::from(FAILURE)
        }
    }
}

fn act(action: Action) -> Result<u8> {
    match action {
        Action::Setup => setup::setup()?,
        Action::Build { parts } => {
            setup::ensure()?;
            parts::build(&parts)?;
        }
        Action::Install(options) => install::install(&options)?,
        Action::Deb => {
            for package in deb::deb()? {
                println!("{}", package.display());
            }
        }
        Action::Run => return demo::run(),
        Action::Lint => lint::lint()?,
        Action::Clean { cache } => clean(cache)?,
        Action::Test(options) => return test::test(&options),
        Action::Bench(options) => return bench::bench(&options),
        Action::Vm(options) => return vm_command::vm(options),
    }
    Ok(0)
}

/// Removes what builds made, and the cache if asked to: trees of other Debians in there are root's.
fn clean(cache: bool) -> Result<()> {
    let target = paths::target();
    if target.exists() {
        fs::remove_dir_all(&target).with_context(|| format!("remove {}", target.display()))?;
    }
    if cache {
        run::quietly(run::as_root("rm").arg("-rf").arg(paths::cache()))?;
    }
    Ok(())
}
