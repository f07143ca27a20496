// SPDX-License-Identifier: MIT OR Apache-2.0
//! A tree of Debian, made from its packages.

use std::path::Path;

use anyhow::Result;

use crate::{apt, run};

/// How much of a Debian there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Variant {
    /// The essential packages and those that are asked for, set up.
    Minimal,
    /// Those that are asked for and what they depend on, unpacked.
    Extracted,
}

impl Variant {
    fn name(self) -> &'static str {
        match self {
            Self::Minimal => "minbase",
            Self::Extracted => "extract",
        }
    }
}

/// What a tree is made of.
pub struct Bootstrap<'a> {
    /// How much of it there is.
    pub variant: Variant,
    /// The release of Debian.
    pub release: &'a str,
    /// Where its packages come from.
    pub sources: &'a [apt::Source],
    /// Those that are asked for; `NAME/SUITE` is one of that suite.
    pub packages: &'a [&'a str],
    /// Further options of mmdebstrap.
    pub options: &'a [String],
}

impl Bootstrap<'_> {
    /// Makes it: a folder, which is root's, or an archive, as the name of `to` says. A folder for
    /// files meanwhile is `scratch`.
    pub fn make(&self, scratch: &Path, to: &Path) -> Result<()> {
        let mut bootstrap = run::as_root("mmdebstrap");
        bootstrap.arg(format!("--variant={}", self.variant.name()));
        bootstrap.args(["--mode=root", "--skip=check/empty"]);
        bootstrap.arg(format!("--include={}", self.packages.join(",")));
        bootstrap.arg("--aptopt=APT::Install-Recommends \"false\"");
        bootstrap.args(self.options).arg(self.release).arg(to);
        bootstrap.args(apt::write_sources(self.sources, scratch, self.release)?);
        run::quietly(&mut bootstrap)
    }
}
