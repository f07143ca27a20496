// SPDX-License-Identifier: GPL-2.0-only
/*
 * A compromised Linux kernel, driven by the scripts of tests/attack: who writes a command to
 * the file "attack" of debugfs reads its result there.
 *
 * hypercall NUMBER A B C D	a call into the hypervisor; its result
 * page				physical address of a page of this module
 */
#include <linux/debugfs.h>
#include <linux/gfp.h>
#include <linux/io.h>
#include <linux/module.h>
#include <linux/uaccess.h>

#include "hypercall.h"

/* Bytes of a command or a result. */
#define LINE	128

static struct dentry *file;
static void *page;
static DEFINE_MUTEX(lock);	/* protects the result */
static char result[LINE];

static int carry_out(const char *command)
{
	u64 number, a = 0, b = 0, c = 0, d = 0;

	if (sscanf(command, "hypercall %lli %lli %lli %lli %lli", &number, &a, &b, &c, &d) > 0)
		return snprintf(result, LINE, "%lld\n", crtos_hypercall(number, a, b, c, d));
	if (sysfs_streq(command, "page"))
		return snprintf(result, LINE, "%#llx\n", (u64)virt_to_phys(page));
	return -EINVAL;
}

static ssize_t attack_write(struct file *opened, const char __user *buffer, size_t length,
			    loff_t *offset)
{
	char command[LINE] = { 0 };
	int error;

	if (length >= LINE || copy_from_user(command, buffer, length))
		return -EINVAL;
	mutex_lock(&lock);
	error = carry_out(command);
	mutex_unlock(&lock);
	return error < 0 ? error : length;
}

static ssize_t attack_read(struct file *opened, char __user *buffer, size_t length,
			   loff_t *offset)
{
	ssize_t got;

	mutex_lock(&lock);
	got = simple_read_from_buffer(buffer, length, offset, result, strlen(result));
	mutex_unlock(&lock);
	return got;
}

static const struct file_operations operations = {
	.owner = THIS_MODULE,
	.read = attack_read,
	.write = attack_write,
};

static int __init attack_init(void)
{
	page = (void *)get_zeroed_page(GFP_KERNEL);
	if (!page)
		return -ENOMEM;
	file = debugfs_create_file("attack", 0600, NULL, NULL, &operations);
	return 0;
}

static void __exit attack_exit(void)
{
	debugfs_remove(file);
	free_page((unsigned long)page);
}

module_init(attack_init);
module_exit(attack_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("What a compromised Linux kernel could do");
