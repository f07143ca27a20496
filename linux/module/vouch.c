// SPDX-License-Identifier: GPL-2.0-only
/*
 * What is told to the real-time kernel about files, and read of them, for all
 * programs of the realm, and what a program is permitted. The shadow, over which
 * its owner has power, takes no part in it: these requests are carried out here, in
 * the shadow thread's context.
 */
#include <linux/capability.h>
#include <linux/cred.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/highmem.h>
#include <linux/kdev_t.h>
#include <linux/magic.h>
#include <linux/major.h>
#include <linux/mm.h>
#include <linux/net.h>
#include <linux/pid.h>
#include <linux/rcupdate.h>
#include <linux/sched.h>
#include <linux/sched/coredump.h>
#include <linux/sched/signal.h>
#include <linux/sched/task.h>
#include <linux/shmem_fs.h>
#include <linux/slab.h>
#include <linux/stat.h>
#include <linux/string.h>
#include <net/inet_sock.h>
#include <net/net_namespace.h>

#include "crtos.h"
#include "realm.h"

/**
 * crtos_vouches() - is a request carried out by the module?
 * @op: CRTOS_OP_*
 */
bool crtos_vouches(u32 op)
{
	switch (op) {
	case CRTOS_OP_STATUS:
	case CRTOS_OP_SCHEDULING:
	case CRTOS_OP_READ:
	case CRTOS_OP_KEEP:
	case CRTOS_OP_LET_GO:
	case CRTOS_OP_IS_CAPABLE:
	case CRTOS_OP_SEGMENT:
	case CRTOS_OP_LIMITS:
	case CRTOS_OP_MEMORY_LIMITS:
	case CRTOS_OP_REGISTERS:
	case CRTOS_OP_SHARE:
	case CRTOS_OP_FILE_NAME:
	case CRTOS_OP_MAY:
	case CRTOS_OP_SOCKET:
	case CRTOS_OP_LOCKED:
	case CRTOS_OP_KEEP_SUCCESSOR:
	case CRTOS_OP_TAKE_SUCCESSOR:
		return true;
	}
	return false;
}

/* The number of /dev/mem (Documentation/admin-guide/devices.txt). */
#define DEVMEM_MINOR	1

/* The file of a descriptor of the calling shadow; NULL if there is none that is the program's. */
static struct file *program_file(u64 descriptor)
{
	struct file *file = fget((u32)descriptor);

	if (file && file->f_op == crtos_device.fops) {
		fput(file);
		return NULL;
	}
	return file;
}

/* The file of a mirror, as long as a process has it. */
struct crtos_kept {
	struct file *file;
	/* Whose pages programs of the realm may change, so that Linux seals none; or NULL. */
	struct address_space *changing;
	/* If its pages can be shared. */
	struct crtos_watch *watch;
	/* The watch is the parent's, of another address space. */
	bool inherited;
};

static void free_kept(struct crtos_kept *kept)
{
	if (!kept)
		return;
	crtos_watch_put(kept->watch);
	if (kept->changing)
		mapping_unmap_writable(kept->changing);
	fput(kept->file);
	kfree(kept);
}

static int get_status(struct file *file, struct kstat *status)
{
	return vfs_getattr(&file->f_path, status, STATX_BASIC_STATS, AT_STATX_SYNC_AS_STAT);
}

/* Is it the file of that identity? 0 or an error. */
static int check_identity(struct file *file, const u64 identity[3])
{
	struct kstat status;
	u64 words[3];
	int error = get_status(file, &status);

	if (!error)
		error = crtos_identify(file, &status, words);
	if (error)
		return error;
	return memcmp(words, identity, sizeof(words)) ? -ESTALE : 0;
}

/* kernel_read() warns of files that it cannot read. */
static bool is_readable(const struct file *file)
{
	return (file->f_mode & FMODE_READ) && file->f_op->read_iter && !file->f_op->read;
}

/*
 * Whoever serves a file system in user space, or has mounted it in a user namespace of
 * their own, chooses what its files have been and will be.
 */
static bool is_trusted(const struct file *file)
{
	const struct super_block *sb = file_inode(file)->i_sb;

	return sb->s_user_ns == &init_user_ns && sb->s_magic != FUSE_SUPER_MAGIC;
}

/* By the inode that was opened: a file system in user space chooses what it tells. */
static bool is_device(const struct file *file)
{
	return S_ISCHR(file_inode(file)->i_mode);
}

/* /dev/mem, and the files of sysfs that show registers of PCI functions among others. */
static bool maps_registers(const struct file *file)
{
	const struct inode *inode = file_inode(file);

	if (is_device(file))
		return inode->i_rdev == MKDEV(MEM_MAJOR, DEVMEM_MINOR);
	return S_ISREG(inode->i_mode) && inode->i_sb->s_magic == SYSFS_MAGIC;
}

static int tell_status(struct file *file, u64 words[6])
{
	struct kstat status;
	int error = get_status(file, &status);

	if (!error)
		error = crtos_identify(file, &status, words);
	if (error)
		return error;
	words[3] = is_device(file) ? new_encode_dev(file_inode(file)->i_rdev) : status.size;
	words[4] = (u64)status.ctime.tv_sec << 30 | status.ctime.tv_nsec;
	words[5] = status.mode | (status.blocks ? 0 : CRTOS_STATUS_EMPTY) |
		   (is_readable(file) ? CRTOS_STATUS_READABLE : 0) |
		   (is_trusted(file) ? CRTOS_STATUS_TRUSTED : 0) |
		   (is_device(file) ? CRTOS_STATUS_DEVICE : 0) |
		   (maps_registers(file) ? CRTOS_STATUS_REGISTERS : 0) |
		   (crtos_sharable(file) ? CRTOS_STATUS_SHARABLE : 0);
	return 0;
}

/* A part of what the file of a descriptor is called, in the eyes of the calling shadow. */
static s64 tell_name(u64 descriptor, u64 from, u64 words[6])
{
	const size_t room = 6 * sizeof(*words);
	struct file *file = program_file(descriptor);
	char *page, *name;
	s64 result;

	if (!file)
		return -EBADF;
	page = (char *)__get_free_page(GFP_KERNEL);
	name = page ? d_path(&file->f_path, page, PAGE_SIZE) : ERR_PTR(-ENOMEM);
	result = IS_ERR(name) ? PTR_ERR(name) : strlen(name);
	memset(words, 0, room);
	if (result > 0 && from < result)
		memcpy(words, name + from, min_t(size_t, room, result - from));
	free_page((unsigned long)page);
	fput(file);
	return result;
}

/*
 * What kind of a socket a descriptor is, as Operation tells. In another network namespace numbers
 * and addresses are those of other interfaces, and who has rights there has none here.
 */
static s64 tell_socket(u64 descriptor, u64 words[6])
{
	struct file *file = program_file(descriptor);
	struct socket *socket;
	s64 result = -ENOTSOCK;

	if (!file)
		return -EBADF;
	socket = sock_from_file(file);
	if (socket && socket->sk && !net_eq(sock_net(socket->sk), &init_net)) {
		result = -ENONET;
	} else if (socket && socket->sk) {
		words[0] = socket->sk->sk_family;
		words[1] = socket->type;
		words[2] = socket->sk->sk_protocol;
		words[3] = words[0] == AF_INET || words[0] == AF_INET6 ?
			   inet_sk(socket->sk)->inet_num : 0;
		result = 0;
	}
	fput(file);
	return result;
}

static s64 tell_descriptor(struct crtos_process *process, u64 descriptor, u64 words[6])
{
	struct file *file = program_file(descriptor);
	s64 result;

	if (!file)
		return -EBADF;
	result = tell_status(file, words);
	if (!result) {
		if (!is_device(file) && maps_registers(file) &&
		    crtos_wish_ports(process->realm, file, &words[3]))
			words[5] |= CRTOS_STATUS_PORTS;
		result = file->f_flags;
	}
	fput(file);
	return result;
}

/* The file of a descriptor, or the one that is kept for a mirror. */
static struct file *source_file(struct crtos_process *process, u64 source)
{
	struct crtos_kept *kept;
	struct file *file = NULL;

	if (source <= U32_MAX)
		return program_file(source);
	crtos_realm_lock();
	kept = xa_load(&process->kept, source >> PAGE_SHIFT);
	if (kept)
		file = get_file(kept->file);
	crtos_realm_unlock();
	return file;
}

/* A file of a file system of Linux's own, with a name that no other file there can have. */
static bool is_segment(const struct file *file)
{
	return !strncmp(file->f_path.dentry->d_name.name, "SYSV", 4) &&
	       (file_inode(file)->i_sb->s_flags & SB_KERNMOUNT);
}

/* Reads a page, or up to the end of the file, behind which a segment has the rest of its page. */
static ssize_t read_page(struct file *file, void *to, size_t count, loff_t position)
{
	pgoff_t index = position >> PAGE_SHIFT;
	ssize_t result = kernel_read(file, to, count, &position);
	struct page *page;

	if (result <= 0 || result == count || !is_segment(file) ||
	    file_inode(file)->i_sb->s_magic != TMPFS_MAGIC)
		return result;
	page = shmem_read_mapping_page(file->f_mapping, index);
	if (IS_ERR(page))
		return PTR_ERR(page);
	memcpy_from_page(to, page, 0, count);
	put_page(page);
	return count;
}

/*
 * Fills pages of the pool. Returns how many bytes there were up to the end of the file, or
 * up to what cannot be read; an error if that is the first one.
 */
static s64 read_pages(struct crtos_realm *realm, struct file *file, u64 at, u64 length, u64 list)
{
	u64 size = realm->cell->pool.count * CRTOS_LARGE_PAGE_SIZE, offset, done = 0;
	const u64 *pages;

	if (!length || length > CRTOS_MOST_READ_PAGES * PAGE_SIZE || at > LLONG_MAX - length ||
	    !crtos_channel_pool_page(list, size, &offset))
		return -EINVAL;
	pages = page_address(crtos_pool_page(realm, offset));
	while (done < length) {
		u64 count = min_t(u64, length - done, PAGE_SIZE);
		ssize_t result;

		if (!crtos_channel_pool_page(READ_ONCE(pages[done / PAGE_SIZE]), size, &offset))
			return -EINVAL;
		result = read_page(file, page_address(crtos_pool_page(realm, offset)), count,
				   at + done);
		if (result < 0)
			return done ? done : result;
		done += result;
		if (result < count)
			break;
		cond_resched();
	}
	return done;
}

static s64 read_file(struct crtos_process *process, const struct crtos_request *request)
{
	u64 source = request->args[0] & (BIT_ULL(CRTOS_READ_LENGTH_SHIFT) - 1);
	u64 length = request->args[0] >> CRTOS_READ_LENGTH_SHIFT;
	struct file *file = source_file(process, source);
	s64 result;

	if (!file)
		return -EBADF;
	result = check_identity(file, &request->args[3]);
	if (!result && !is_readable(file))
		result = -EINVAL;
	if (!result)
		result = read_pages(process->realm, file, request->args[1], length,
				    request->args[2]);
	fput(file);
	return result;
}

/* What the shadow has mapped from an address on. */
struct mapped {
	struct file *file;
	unsigned long flags;
	u64 length;
	pgoff_t first;
};

/* Keeps a file for a mirror, in place of what is kept there; takes the reference to it. */
static int keep(struct crtos_process *process, u64 mirror, struct file *file,
		struct address_space *changing, const struct mapped *mapped)
{
	struct crtos_kept *kept = kzalloc(sizeof(*kept), GFP_KERNEL), *before;

	if (!kept) {
		if (changing)
			mapping_unmap_writable(changing);
		fput(file);
		return -ENOMEM;
	}
	kept->file = file;
	kept->changing = changing;
	if ((mapped->flags & VM_MAYSHARE) && crtos_sharable(file)) {
		struct crtos_watch *watch = crtos_watch_begin(process->realm, file, mirror,
							      mapped->length, mapped->first);

		if (IS_ERR(watch)) {
			free_kept(kept);
			return PTR_ERR(watch);
		}
		kept->watch = watch;
	}
	crtos_realm_lock();
	before = xa_store(&process->kept, mirror >> PAGE_SHIFT, kept, GFP_KERNEL);
	crtos_realm_unlock();
	if (xa_is_err(before)) {
		free_kept(kept);
		return xa_err(before);
	}
	free_kept(before);
	return 0;
}

/* Finds what the shadow has mapped from an address on, with a reference to its file if any. */
static int find_mapped(u64 address, struct mapped *mapped)
{
	struct vm_area_struct *vma;

	memset(mapped, 0, sizeof(*mapped));
	if (mmap_read_lock_killable(current->mm))
		return -EINTR;
	vma = vma_lookup(current->mm, address);
	if (vma && vma->vm_start == address && vma->vm_file) {
		mapped->file = get_file(vma->vm_file);
		mapped->flags = vma->vm_flags;
		mapped->length = vma->vm_end - vma->vm_start;
		mapped->first = vma->vm_pgoff;
	}
	mmap_read_unlock(current->mm);
	return 0;
}

/*
 * Keeps a file of the process for a mirror. What the mirror shows may be written if
 * Linux permits that for its mapping there; it stays so, because a file is not sealed
 * while somebody may write to its pages.
 */
static s64 keep_file(struct crtos_process *process, const struct crtos_request *request)
{
	struct file *file = source_file(process, request->args[0]);
	struct address_space *changing = NULL;
	u64 mirror = request->args[1];
	struct mapped mapped;
	int error;

	if (!file)
		return -EBADF;
	error = check_identity(file, &request->args[2]);
	if (error)
		goto out;
	error = find_mapped(mirror, &mapped);
	if (error)
		goto out;
	if (mapped.file) {
		struct inode *inode = d_real_inode(file->f_path.dentry);

		if (file_inode(mapped.file) != inode)
			mapped.flags = 0;
		if ((mapped.flags & VM_SHARED) && (mapped.flags & VM_MAYWRITE) &&
		    !mapping_map_writable(inode->i_mapping))
			changing = inode->i_mapping;
		fput(mapped.file);
	}
	error = keep(process, mirror, file, changing, &mapped);
	return error ? error : !!changing;
out:
	fput(file);
	return error;
}

static s64 let_go(struct crtos_process *process, u64 mirror)
{
	struct crtos_kept *kept;

	crtos_realm_lock();
	kept = xa_erase(&process->kept, mirror >> PAGE_SHIFT);
	crtos_realm_unlock();
	free_kept(kept);
	return 0;
}

/* Which segment of System V shared memory is attached as a mirror; it is kept for that. */
static s64 tell_segment(struct crtos_process *process, u64 mirror, u64 words[6])
{
	struct mapped mapped;
	struct file *file;
	s64 result = find_mapped(mirror, &mapped);

	if (result || !mapped.file)
		return result ?: -EINVAL;
	if (!is_segment(mapped.file)) {
		fput(mapped.file);
		return -EINVAL;
	}
	/* What is mapped cannot be read. */
	file = dentry_open(&mapped.file->f_path, O_RDONLY | O_LARGEFILE, current_cred());
	result = !!(mapped.file->f_mode & FMODE_WRITE);
	fput(mapped.file);
	if (IS_ERR(file))
		return PTR_ERR(file);
	result = tell_status(file, words) ?: result;
	if (result < 0)
		fput(file);
	else
		result = keep(process, mirror, file, NULL, &mapped) ?: result;
	return result;
}

/* Puts pages of a mirror at places of the share window. */
static s64 share_pages(struct crtos_process *process, const struct crtos_request *request)
{
	struct crtos_watch *watch = NULL;
	struct file *file = NULL;
	struct crtos_kept *kept;
	s64 result;

	crtos_realm_lock();
	kept = xa_load(&process->kept, request->args[0] >> PAGE_SHIFT);
	if (kept && kept->watch && !kept->inherited) {
		watch = kept->watch;
		crtos_watch_get(watch);
		file = get_file(kept->file);
	}
	crtos_realm_unlock();
	if (!watch)
		return -EINVAL;
	result = crtos_share(watch, file, request);
	fput(file);
	crtos_watch_put(watch);
	return result;
}

/*
 * Which registers of a function of the realm are mapped as a mirror. Both kinds of files map
 * physical pages, of which the mapping has the number of the first.
 */
static s64 tell_registers(struct crtos_process *process, u64 mirror, u64 words[6])
{
	struct vm_area_struct *vma;
	u64 start = 0, size = 0;

	if (mmap_read_lock_killable(current->mm))
		return -EINTR;
	vma = vma_lookup(current->mm, mirror);
	if (vma && vma->vm_start == mirror && (vma->vm_flags & VM_PFNMAP) && vma->vm_file &&
	    maps_registers(vma->vm_file)) {
		start = (u64)vma->vm_pgoff << PAGE_SHIFT;
		size = vma->vm_end - vma->vm_start;
	}
	mmap_read_unlock(current->mm);
	return size ? crtos_wish_registers(process->realm, start, size, words) : -ENODEV;
}

/* The limits of a process of the caller's namespace, by a thread, 0 for the caller's. */
static s64 tell_limits(u64 tid, u64 words[6])
{
	struct task_struct *task;
	s64 result = -ESRCH;

	rcu_read_lock();
	task = tid ? pid_task(find_vpid(tid), PIDTYPE_PID) : current;
	if (task) {
		words[0] = task_rlimit(task, RLIMIT_SIGPENDING);
		words[1] = task_rlimit(task, RLIMIT_NOFILE);
		words[2] = task_rlimit(task, RLIMIT_CPU);
		words[3] = task_rlimit_max(task, RLIMIT_CPU);
		words[4] = task_rlimit(task, RLIMIT_RTTIME);
		words[5] = task_rlimit_max(task, RLIMIT_RTTIME);
		result = 0;
	}
	rcu_read_unlock();
	return result;
}

/* The limits of the caller's memory. */
static s64 tell_memory_limits(u64 words[6])
{
	words[0] = rlimit(RLIMIT_AS);
	words[1] = rlimit_max(RLIMIT_AS);
	words[2] = rlimit(RLIMIT_DATA);
	words[3] = rlimit_max(RLIMIT_DATA);
	words[4] = rlimit(RLIMIT_MEMLOCK);
	words[5] = rlimit_max(RLIMIT_MEMLOCK);
	return 0;
}

/*
 * Has Linux tell that so many bytes of the caller's memory are locked. The shadow itself locks
 * none, and nothing of Linux's depends on the number.
 */
static s64 note_locked(u64 bytes)
{
	if (mmap_write_lock_killable(current->mm))
		return -EINTR;
	current->mm->locked_vm = bytes >> PAGE_SHIFT;
	mmap_write_unlock(current->mm);
	return 0;
}

/* The scheduling of a thread of the caller's namespace, 0 for the caller, as Operation tells. */
static s64 tell_scheduling(u64 tid)
{
	struct task_struct *task;
	s64 result = -ESRCH;

	rcu_read_lock();
	task = tid ? pid_task(find_vpid(tid), PIDTYPE_PID) : current;
	if (task)
		result = task->policy | task->rt_priority << 8 |
			 (u64)(task_nice(task) + 20) << 16 |
			 (u64)task->sched_reset_on_fork << 24;
	rcu_read_unlock();
	return result;
}

/* Are all user ids of a task the caller's, and all group ids? */
static bool has_ids_of(const struct cred *other, const struct cred *cred)
{
	return uid_eq(cred->uid, other->euid) && uid_eq(cred->uid, other->suid) &&
	       uid_eq(cred->uid, other->uid) && gid_eq(cred->gid, other->egid) &&
	       gid_eq(cred->gid, other->sgid) && gid_eq(cred->gid, other->gid);
}

/* May others of its user look into a task that has no more rights than they? */
static bool is_dumpable(struct task_struct *task)
{
	bool result;

	task_lock(task);
	result = task->mm && get_dumpable(task->mm) == SUID_DUMP_USER;
	task_unlock(task);
	return result;
}

/*
 * Does Linux permit that to the caller? Its rules are sched_setaffinity(2)'s, prlimit(2)'s and
 * ptrace(2)'s. Security modules it asks where the shadow makes the call. Under rcu_read_lock().
 */
static bool may_do(u64 deed, struct task_struct *task)
{
	const struct cred *cred = current_cred(), *other = __task_cred(task);

	switch (deed) {
	case CRTOS_MAY_SCHEDULE:
		return uid_eq(cred->euid, other->euid) || uid_eq(cred->euid, other->uid) ||
		       ns_capable(other->user_ns, CAP_SYS_NICE);
	case CRTOS_MAY_LIMIT:
		return has_ids_of(other, cred) || ns_capable(other->user_ns, CAP_SYS_RESOURCE);
	case CRTOS_MAY_TRACE:
		return (has_ids_of(other, cred) && is_dumpable(task) &&
			cred->user_ns == other->user_ns &&
			cap_issubset(other->cap_permitted, cred->cap_permitted)) ||
		       ns_capable(other->user_ns, CAP_SYS_PTRACE);
	}
	return false;
}

/* The same of the thread that has a slot, whose shadow has that process id. */
static s64 may(struct crtos_realm *realm, u64 deed, u64 slot, u64 pid)
{
	struct crtos_thread *thread;
	s64 result = -ESRCH;

	if (slot >= CRTOS_SLOTS)
		return -EINVAL;
	rcu_read_lock();
	thread = rcu_dereference(realm->threads[slot]);
	if (thread && task_tgid_nr(thread->task) == pid)
		result = may_do(deed, thread->task) ? 0 : -EPERM;
	rcu_read_unlock();
	return result;
}

/**
 * crtos_vouch() - carry out the request of a thread
 * @thread: the calling task's thread, with a request for which crtos_vouches() is true
 * @words: what goes into the reply beside the result
 * @result: where the result goes
 *
 * Context: The calling task is the shadow thread. May sleep.
 * Return: 0, or -ERESTARTNOINTR when a signal has to be taken first.
 */
int crtos_vouch(struct crtos_thread *thread, u64 words[6], s64 *result)
{
	const struct crtos_request *request = &thread->request;
	struct crtos_process *process = thread->process;

	switch (request->op) {
	case CRTOS_OP_STATUS:
		*result = tell_descriptor(process, request->args[0], words);
		break;
	case CRTOS_OP_FILE_NAME:
		*result = tell_name(request->args[0], request->args[1], words);
		break;
	case CRTOS_OP_SOCKET:
		*result = tell_socket(request->args[0], words);
		break;
	case CRTOS_OP_READ:
		*result = read_file(process, request);
		break;
	case CRTOS_OP_KEEP:
		*result = keep_file(process, request);
		break;
	case CRTOS_OP_LET_GO:
		*result = let_go(process, request->args[0]);
		break;
	case CRTOS_OP_SEGMENT:
		*result = tell_segment(process, request->args[0], words);
		break;
	case CRTOS_OP_LIMITS:
		*result = tell_limits(request->args[0], words);
		break;
	case CRTOS_OP_MEMORY_LIMITS:
		*result = tell_memory_limits(words);
		break;
	case CRTOS_OP_LOCKED:
		*result = note_locked(request->args[0]);
		break;
	case CRTOS_OP_REGISTERS:
		*result = tell_registers(process, request->args[0], words);
		break;
	case CRTOS_OP_SCHEDULING:
		*result = tell_scheduling(request->args[0]);
		break;
	case CRTOS_OP_SHARE:
		*result = share_pages(process, request);
		break;
	case CRTOS_OP_MAY:
		*result = may(process->realm, request->args[0], request->args[1], request->args[2]);
		break;
	case CRTOS_OP_KEEP_SUCCESSOR:
		*result = crtos_successor_keep(process->realm, program_file(request->args[0]),
					       request->args[1]);
		break;
	case CRTOS_OP_TAKE_SUCCESSOR:
		*result = crtos_successor_take(process->realm, request->args[0]);
		break;
	default:
		*result = request->args[0] <= CAP_LAST_CAP && capable(request->args[0]) ?
			  0 : -EPERM;
	}
	/* File systems may give up for a signal: the request is carried out anew after that. */
	if ((*result == -EINTR || *result == -ERESTARTSYS) && signal_pending(current))
		return -ERESTARTNOINTR;
	return 0;
}

/**
 * crtos_kept_copy() - keep for a process what is kept for its parent
 * @process: the process
 * @parent: the one that forked it
 *
 * Context: Under realm_lock; may sleep.
 * Return: 0 or -ENOMEM.
 */
int crtos_kept_copy(struct crtos_process *process, struct crtos_process *parent)
{
	struct crtos_kept *kept, *copy;
	unsigned long index;

	xa_for_each(&parent->kept, index, kept) {
		copy = kzalloc(sizeof(*copy), GFP_KERNEL);
		if (!copy || xa_err(xa_store(&process->kept, index, copy, GFP_KERNEL))) {
			kfree(copy);
			return -ENOMEM;
		}
		copy->file = get_file(kept->file);
		copy->watch = kept->watch;
		copy->inherited = copy->watch;
		if (copy->watch)
			crtos_watch_get(copy->watch);
		/* This cannot fail: the parent's is counted. */
		if (kept->changing && !mapping_map_writable(kept->changing))
			copy->changing = kept->changing;
	}
	return 0;
}

/**
 * crtos_kept_watch() - watch the mirrors that a process has from its parent
 * @process: the process, which the calling task is to be the shadow of
 *
 * Context: Nobody else changes what is kept yet. May sleep; takes mmap_lock.
 * Return: 0 or -ENOMEM.
 */
int crtos_kept_watch(struct crtos_process *process)
{
	struct crtos_watch *watch;
	struct crtos_kept *kept;
	unsigned long index;

	xa_for_each(&process->kept, index, kept) {
		if (!kept->inherited)
			continue;
		watch = crtos_watch_copy(kept->watch);
		if (IS_ERR(watch))
			return -ENOMEM;
		swap(watch, kept->watch);
		kept->inherited = false;
		crtos_watch_put(watch);
	}
	return 0;
}

/**
 * crtos_kept_free() - let all files of a process go
 * @process: the process, of which no call is made any more
 *
 * Context: May sleep.
 */
void crtos_kept_free(struct crtos_process *process)
{
	struct crtos_kept *kept;
	unsigned long index;

	xa_for_each(&process->kept, index, kept)
		free_kept(kept);
	xa_destroy(&process->kept);
}
