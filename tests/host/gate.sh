#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Lengths of the realm's paths, in instructions, against those in the tree.
# timeout: 900
set -u
exec ./x bench gate
