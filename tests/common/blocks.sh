# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=bash
# The blocks of a page of the documentation.

# block PAGE SECTION KIND: prints the page's blocks of that kind, in that section.
block() {
	awk -v section="## $2" -v fence="\`\`\`$3" '
		/^## / { here = $0 == section }
		/^```/ { inside = here && $0 == fence; next }
		inside' "$1"
}
