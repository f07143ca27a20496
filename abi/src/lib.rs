// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every structure and number that two parts of crtos share.
#![cfg_attr(not(test), no_std)]
