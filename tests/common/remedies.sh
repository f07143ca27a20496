# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=bash
# What the remedies of docs/troubleshooting.md name between backquotes.

# named: prints all of it, each behind the code of the remedy.
named() {
	crtos explain | cut -d' ' -f1 | while read -r code; do
		crtos explain "$code" | sed -n '/^Remedy:/,$p' | tr '\n' ' ' | grep -o '`[^`]*`' |
			tr -d '`' | sed "s/^/$code /"
	done
}

# kind TEXT: prints what it is: an option, a file, a parameter of Linux's command line, a word of
# something else, a command, or one that needs a whole Debian.
kind() {
	case $1 in
	- | _ | -- | '-cpu host' | '--group-add '* | '--device /dev/crtos') echo word ;;
	DLN | RuntimeWatchdogSec=0 | '#!/bin/sh' | destroy | false | ro | start | true | watchdog)
		echo word ;;
	crtos | 'crtos run' | 'crtos cell stop') echo word ;;
	--*) echo option ;;
	/*) echo file ;;
	*' '*) case ${1%% *} in
		apt | dkms | kdump-config | make | mokutil | systemctl) echo debian ;;
		*) echo command ;;
		esac ;;
	depmod) echo debian ;;
	*= | *=* | nox2apic | no5lvl) echo parameter ;;
	*) echo command ;;
	esac
}
