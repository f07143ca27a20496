# SPDX-License-Identifier: MIT OR Apache-2.0
.PHONY: run test build lint clean install

PREFIX ?= /usr/local

run test build lint clean:
	@./x $@

# The realm's parts find each other from where the command is.
install:
	@./x install --destdir '$(DESTDIR)/' --prefix '$(PREFIX)'
