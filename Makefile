# SPDX-License-Identifier: MIT OR Apache-2.0
.PHONY: run test build lint clean

run test build lint clean:
	@./x $@
