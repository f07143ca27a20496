// SPDX-License-Identifier: MIT OR Apache-2.0
//! What measurements are and what is made of them, for `crtos bench`, which measures, and for
//! `./x bench`, which boots the systems to measure.
//!
//! | module | concept |
//! |---|---|
//! | [`catalogue`] | the figures and the loads: name, meaning, the program that measures it |
//! | [`model`] | results: machine, method, systems, cells, histograms; their JSON |
//! | [`order`], [`store`] | a measurement that is wanted; measurements on disk, to resume |
//! | [`program`] | what the programs of `tools/bench/` print |
//! | [`histogram`] | values with counts, and their statistics |
//! | [`cyclictest`] | what cyclictest's JSON says |
//! | [`goals`] | what the system has to reach, and whether it does |
//! | [`compare`] | results against expected ones: worse, better, missing |
//! | [`table`] | results for a terminal |
//! | [`markdown`] | results as a page of the documentation |
//! | [`page`], [`plot`] | results as one HTML page with figures |
#![forbid(unsafe_code)]

pub mod catalogue;
pub mod compare;
pub mod cyclictest;
pub mod goals;
pub mod histogram;
pub mod markdown;
pub mod model;
pub mod order;
pub mod page;
pub mod plot;
pub mod program;
pub mod store;
pub mod table;

pub use histogram::{Histogram, Summary};
pub use model::{Cell, Measurement, Results, System};
pub use order::Order;
pub use store::Store;
