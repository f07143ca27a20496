// SPDX-License-Identifier: MIT OR Apache-2.0
//! The processor.

pub mod context;
pub mod fpu;

pub use context::{UserContext, enter_user};
