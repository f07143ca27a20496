/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The hypervisor's image. Whoever may load this module decides which hypervisor runs:
 * the module's signature covers it, and no file is read at the launch.
 */

#include <linux/linkage.h>

	.section .crtos_image, "a"
	.balign 8
SYM_DATA_START(crtos_image)
	.incbin HYPERVISOR_IMAGE
SYM_DATA_END_LABEL(crtos_image, SYM_L_GLOBAL, crtos_image_end)

	.section .note.GNU-stack, "", @progbits
