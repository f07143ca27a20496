// SPDX-License-Identifier: GPL-2.0-only
/*
 * /dev/crtos: who may do what, and what becomes of it when a file is released.
 */
#include <linux/capability.h>
#include <linux/cred.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <asm/apic.h>
#include <asm/tsc.h>

#include "crtos.h"
#include "realm.h"

/**
 * crtos_refuse() - note down for CRTOS_IOC_REASON why a call fails
 * @file: the file of the call; NULL when something is undone: then the log gets it
 * @error: the call's result
 * @format: "[CODE] ", what was asked, why it was refused, what to do; docs/troubleshooting.md has a
 *	section for each code
 *
 * Context: May sleep, or hold any lock of the module but reason_lock.
 * Return: @error.
 */
int crtos_refuse(struct crtos_file *file, int error, const char *format, ...)
{
	struct va_format text = { .fmt = format };
	char reason[sizeof(file->reason)];
	va_list arguments;

	va_start(arguments, format);
	text.va = &arguments;
	scnprintf(reason, sizeof(reason), "%pV", &text);
	va_end(arguments);
	if (file) {
		spin_lock(&file->reason_lock);
		strscpy(file->reason, reason, sizeof(file->reason));
		spin_unlock(&file->reason_lock);
	} else {
		pr_err("crtos: %s\n", reason);
	}
	return error;
}

/**
 * crtos_refuse_hv() - the same for a call that the hypervisor refuses
 * @file: the file of the call, or NULL
 * @result: what the hypervisor answered
 * @what: what was asked of it: "create the cell"
 *
 * Return: a negative error.
 */
int crtos_refuse_hv(struct crtos_file *file, s64 result, const char *what)
{
	static const struct {
		const char *text;
		int error;
	} errors[] = {
		[-CRTOS_HV_INVALID] = { "an argument is out of range", -EINVAL },
		[-CRTOS_HV_NO_CELL] = { "it has no such cell", -ENOENT },
		[-CRTOS_HV_BUSY] = { "the cell is not in a state for that", -EBUSY },
		[-CRTOS_HV_NO_MEMORY] = { "its memory is used up: destroy a cell", -ENOMEM },
		[-CRTOS_HV_OWNED] = { "that belongs to another cell", -EBUSY },
		[-CRTOS_HV_DENIED] = { "that is not for Linux", -EPERM },
		[-CRTOS_HV_NO_CALL] = { "it does not know the call: install crtos again", -EPROTO },
		[-CRTOS_HV_TIMEOUT] = { "a CPU does not react: see its log", -EIO },
		[-CRTOS_HV_LOCKED] = { "the cell is locked, which only its programs end", -EBUSY },
	};

	if (result < 0 && -result < ARRAY_SIZE(errors))
		return crtos_refuse(file, errors[-result].error,
				    "[hypervisor-refuses] the hypervisor does not %s: %s",
				    what, errors[-result].text);
	return crtos_refuse(file, -EIO, "[hypervisor-refuses] the hypervisor does not %s: unknown result %lld",
			    what, result);
}

static int get_info(struct crtos_info __user *user)
{
	struct crtos_info info = {
		.abi_version = CRTOS_ABI_VERSION,
		.realm = CRTOS_NO_CELL,
		.tsc_khz = tsc_khz,
		.x2apic = x2apic_enabled(),
		.processes = crtos_realm_processes(),
	};
	unsigned int cpu;
	int i;

	if (mutex_lock_killable(&crtos.lock))
		return -EINTR;
	info.enabled = crtos.enabled;
	info.cells = crtos_cell_mask();
	for (i = 0; i < CRTOS_MAX_CELLS; i++)
		if (crtos.cells[i] && crtos.cells[i]->realm)
			info.realm = i;
	for_each_cpu(cpu, &crtos.cell_cpus)
		info.cell_cpus[cpu / 64] |= BIT_ULL(cpu % 64);
	mutex_unlock(&crtos.lock);
	return copy_to_user(user, &info, sizeof(info)) ? -EFAULT : 0;
}

/* Copies from the report. It stays from the first launch on, also when the hypervisor left. */
static int get_report(struct crtos_file *file, struct crtos_transfer __user *user)
{
	struct crtos_transfer transfer;
	void *report;

	if (copy_from_user(&transfer, user, sizeof(transfer)))
		return -EFAULT;
	/* Stored once by launch_image(). */
	report = READ_ONCE(crtos.report);
	if (!report)
		return crtos_refuse(file, -ENODATA,
				    "[not-up] the hypervisor never ran, so it has no report");
	if (transfer.length > CRTOS_REPORT_SIZE ||
	    transfer.offset > CRTOS_REPORT_SIZE - transfer.length)
		return crtos_refuse(file, -EINVAL, "[bad-call] %llu bytes at %llu are outside the report",
				    transfer.length, transfer.offset);
	if (copy_to_user(u64_to_user_ptr(transfer.buffer), report + transfer.offset,
			 transfer.length))
		return -EFAULT;
	return 0;
}

static void clear_reason(struct crtos_file *file)
{
	spin_lock(&file->reason_lock);
	file->reason[0] = '\0';
	spin_unlock(&file->reason_lock);
}

static int get_reason(struct crtos_file *file, struct crtos_reason __user *user)
{
	struct crtos_reason reason = {};

	spin_lock(&file->reason_lock);
	memcpy(reason.text, file->reason, sizeof(reason.text));
	spin_unlock(&file->reason_lock);
	return copy_to_user(user, &reason, sizeof(reason)) ? -EFAULT : 0;
}

static int keep(struct crtos_file *file)
{
	int i;

	if (crtos.owner == file)
		crtos.owner = NULL;
	for (i = 0; i < CRTOS_MAX_CELLS; i++)
		if (crtos.cells[i] && crtos.cells[i]->owner == file)
			crtos.cells[i]->owner = NULL;
	crtos_links_keep(file);
	return 0;
}

/* Calls that change the machine, one at a time. */
static int configure(struct crtos_file *file, unsigned int command, unsigned long argument)
{
	void __user *user = (void __user *)argument;

	switch (command) {
	case CRTOS_IOC_ENABLE:
		return crtos_enable(file, argument);
	case CRTOS_IOC_DISABLE:
		return crtos_disable(file);
	case CRTOS_IOC_CELL_CREATE:
		return crtos_cell_create(file, user);
	case CRTOS_IOC_CELL_LOAD:
		return crtos_cell_load(file, user);
	case CRTOS_IOC_CELL_START:
		return crtos_cell_start(file, user);
	case CRTOS_IOC_CELL_STOP:
		return crtos_cell_stop(file, argument);
	case CRTOS_IOC_CELL_DESTROY:
		return crtos_cell_destroy(file, argument & ~CRTOS_CELL_FORCE,
					  argument & CRTOS_CELL_FORCE);
	case CRTOS_IOC_KEEP:
		return keep(file);
	case CRTOS_IOC_CELL_LOCK:
		return crtos_cell_lock(file, argument);
	case CRTOS_IOC_CELL_SEAL:
		return crtos_cell_seal(file, argument);
	case CRTOS_IOC_DEVICE_ADD:
		return crtos_device_add(file, user);
	case CRTOS_IOC_DEVICE_REMOVE:
		return crtos_device_remove(file, user);
	case CRTOS_IOC_INTERFACE_SHOW:
		return crtos_interface_show(file, user);
	case CRTOS_IOC_ETHERNET_ADD:
		return crtos_ethernet_add(file, user);
	case CRTOS_IOC_LINK_CREATE:
		return crtos_link_create(file, user);
	case CRTOS_IOC_LINK_DESTROY:
		return crtos_link_destroy(file, user);
	case CRTOS_IOC_LINK_JOIN:
		return crtos_link_join(file, user);
	case CRTOS_IOC_DOORBELL:
		return crtos_cell_doorbell(file, argument & (BIT(CRTOS_DOORBELL_CPU_SHIFT) - 1),
					   (u32)argument >> CRTOS_DOORBELL_CPU_SHIFT);
	case CRTOS_IOC_CHANNEL_WRITE:
		return crtos_cell_write(file, user);
	case CRTOS_IOC_TRACE:
		return crtos_trace(file, argument);
	}
	return -ENOTTY;
}

static int locked_configure(struct crtos_file *file, unsigned int command, unsigned long argument)
{
	int result;

	clear_reason(file);
	if (!capable(CAP_SYS_ADMIN))
		return crtos_refuse(file, -EPERM,
				    "[not-permitted] this takes CAP_SYS_ADMIN: call it as root");
	if (mutex_lock_killable(&crtos.lock))
		return -EINTR;
	result = configure(file, command, argument);
	mutex_unlock(&crtos.lock);
	return result;
}

static int locked_spawn(struct crtos_file *file, const struct path *path, void __user *user)
{
	int result;

	clear_reason(file);
	if (mutex_lock_killable(&file->lock))
		return -EINTR;
	result = crtos_spawn(file, path, user);
	mutex_unlock(&file->lock);
	return result;
}

/*
 * Opens the device once more for a shadow: it may have given up the user or the root by
 * which it could open the device by its name.
 */
static int reopen(struct file *file, unsigned long flags)
{
	struct crtos_process *process = crtos_file_process(file->private_data);
	struct file *again;
	int fd;

	if (flags & ~(unsigned long)O_CLOEXEC)
		return -EINVAL;
	if (!process)
		return -EPERM;
	fd = get_unused_fd_flags(flags);
	if (fd < 0)
		return fd;
	again = dentry_open(&file->f_path, O_RDWR | O_LARGEFILE, current_cred());
	if (IS_ERR(again)) {
		put_unused_fd(fd);
		return PTR_ERR(again);
	}
	/* Only that of a program is to stay over execve. */
	if (!(flags & O_CLOEXEC))
		crtos_thread_bequeath(process, again->private_data);
	fd_install(fd, again);
	return fd;
}

/*
 * Copies memory of the caller, who could do so itself, but for what is not there. No
 * system call for that is sure to be permitted in a container.
 */
static int copy_range(void __user *user)
{
	struct crtos_copy_range range;
	u64 done, length;
	int error = 0;
	void *bounce;

	if (copy_from_user(&range, user, sizeof(range)))
		return -EFAULT;
	bounce = (void *)__get_free_page(GFP_KERNEL);
	if (!bounce)
		return -ENOMEM;
	for (done = 0; done < range.length && !error; done += length) {
		length = min_t(u64, range.length - done, PAGE_SIZE);
		if (fatal_signal_pending(current))
			error = -EINTR;
		else if (copy_from_user(bounce, u64_to_user_ptr(range.from + done), length) ||
			 copy_to_user(u64_to_user_ptr(range.to + done), bounce, length))
			error = -EFAULT;
		cond_resched();
	}
	free_page((unsigned long)bounce);
	return error;
}

static long crtos_ioctl(struct file *file, unsigned int command, unsigned long argument)
{
	struct crtos_file *crtos_file = file->private_data;
	void __user *user = (void __user *)argument;

	switch (command) {
	case CRTOS_IOC_REMOTE:
		return crtos_remote(crtos_file, user);
	case CRTOS_IOC_SIGNAL:
		return crtos_signal(crtos_file, user);
	case CRTOS_IOC_THREAD:
		return crtos_thread_create(crtos_file, argument);
	case CRTOS_IOC_SPAWN:
		return locked_spawn(crtos_file, &file->f_path, user);
	case CRTOS_IOC_REOPEN:
		return reopen(file, argument);
	case CRTOS_IOC_COPY:
		return copy_range(user);
	case CRTOS_IOC_INFO:
		return get_info(user);
	case CRTOS_IOC_LINK_INFO:
		return crtos_link_info(user);
	case CRTOS_IOC_REPORT:
		return get_report(crtos_file, user);
	case CRTOS_IOC_CHANNEL:
		clear_reason(crtos_file);
		return crtos_cell_read(crtos_file, user);
	case CRTOS_IOC_REASON:
		return get_reason(crtos_file, user);
	}
	return locked_configure(crtos_file, command, argument);
}

static int crtos_open(struct inode *inode, struct file *file)
{
	struct crtos_file *crtos_file = kzalloc(sizeof(*crtos_file), GFP_KERNEL);

	if (!crtos_file)
		return -ENOMEM;
	mutex_init(&crtos_file->lock);
	spin_lock_init(&crtos_file->reason_lock);
	file->private_data = crtos_file;
	return 0;
}

/* Undoes what the file made and did not keep. */
static void undo(struct crtos_file *file)
{
	mutex_lock(&crtos.lock);
	crtos_cells_release(file);
	crtos_links_release(file);
	if (crtos.owner == file) {
		crtos.owner = NULL;
		if (!crtos_cell_mask())
			crtos_disable(NULL);
	}
	mutex_unlock(&crtos.lock);
}

/* Runs when the last descriptor and the last mapping of the file are gone. */
static int crtos_release(struct inode *inode, struct file *file)
{
	struct crtos_file *crtos_file = file->private_data;

	crtos_heir_decided(crtos_file);
	if (crtos_file->process) {
		crtos_process_over(crtos_file->process);
		crtos_process_put(crtos_file->process);
	}
	if (crtos_file->traces)
		crtos_trace(crtos_file, 0);
	if (crtos_file->owns)
		undo(crtos_file);
	kfree(crtos_file);
	return 0;
}

static const struct file_operations crtos_operations = {
	.owner = THIS_MODULE,
	.open = crtos_open,
	.release = crtos_release,
	.unlocked_ioctl = crtos_ioctl,
	.mmap = crtos_mmap,
	.llseek = noop_llseek,
};

struct miscdevice crtos_device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "crtos",
	.fops = &crtos_operations,
	.mode = 0660,
};
