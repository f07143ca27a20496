#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# The realm's paths are as long, in instructions, as the tree says.
# timeout: 900
set -u
exec ./x bench gate
