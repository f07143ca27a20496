// SPDX-License-Identifier: GPL-2.0-only
/*
 * A compromised Linux kernel, driven by the scripts of tests/attack: who writes a command to
 * the file "attack" of debugfs reads its result there.
 *
 * hypercall NUMBER A B C D	a call into the hypervisor; its result
 * page				physical address of a page of this module
 * wake CPU			has an offline CPU execute code of this module by an NMI; whether it
 *				is a "guest" of the hypervisor there, "native", or "nowhere"
 * rdmsr CPU REGISTER		a model-specific register; -5 if reading it faults
 * wrmsr CPU REGISTER VALUE	0, or -5 if writing it faults
 * inb PORT			a byte
 * outb PORT VALUE		0
 * outw PORT VALUE		0, of two bytes
 * outs PORT VALUE		0, of a byte by an instruction for strings, or -14 if it faults
 * pci REGISTER			four bytes of the first device's configuration space, read
 *				through ports
 * pci ADDRESS WIDTH PORT VALUE	0; that address is written to configuration space's register, and
 *				so many bytes to a port then
 * race HARMLESS ADDRESS VALUE MS
 *				0; a byte is written with the one address for so long, while another
 *				CPU writes the other one
 * resets PORT VALUE		0; ACPI's tables say from now on that this resets the machine
 * triple			a triple fault of the CPU that executes it
 * hang				all CPUs write an H to the debug port and spin, with interrupts off
 * nmi TARGET			sends an NMI to a CPU
 * storm TARGET CPU CPU MS	two CPUs send NMIs to a third for so long
 * leave CPU			has the hypervisor leave a CPU; the result of that call
 * random hypercalls SEED COUNT REALM CPU
 *				calls into the hypervisor, beside the cell REALM, with CPU offline
 * random registers SEED COUNT	reads of all, and writes to all that Linux may not write
 * random ports SEED COUNT FIRST LAST SMI
 *				ports that a cell has alone, and SMI; reads of others
 * random words SEED COUNT PID US
 *				into the channel, but for slots of process PID, each US microseconds
 * random rings SEED COUNT CELL	into the rings of the virtual Ethernet, and rings that cell each
 *				time
 * message CPU LOW		stores a message for a CPU to the window of messages; how many NMIs
 *				that CPU has handled since, or -14 if the store faults
 * command CPU LOW		a command for a CPU by the page of the local APIC, in xAPIC mode;
 *				how many NMIs that CPU has handled since
 * flood CELL INDEX MS		all CPUs ring a cell's doorbell on one of its CPUs for so long; how
 *				often they did
 * redirect PIN			an entry of the first I/O APIC
 * redirect PIN VALUE OFFSET	0; the entry has that value from now on, written to the registers
 *				at this offset of the page, 0 or one where chips repeat them, the
 *				lower half by a store of 32 bits, and then by one of 64
 * upper PIN VALUE		0; the upper half of the entry has that value from now on
 * timer NUMBER ADDRESS DATA	a comparator of the first HPET is to store that soon; whether it
 *				says that it may
 * timer NUMBER			whether it says that it may
 * aim NUMBER ADDRESS DATA	0; a comparator is to store that, at no time yet
 * store KIND ADDRESS VALUE	stores to a device by an instruction of some kind; 0, or -14 if it
 *				faults
 * device CPU LOW		the device edu of QEMU sends a CPU that message; 0
 * remapped INDEX LOW HIGH	forges an entry of the first IOMMU for interrupts, of which those of
 *				32 bits have no high half, tells the IOMMU, and has the device edu
 *				send the message that names it; 0
 * unit OFFSET			a register of the first IOMMU, of 32 bits
 * unit OFFSET VALUE		the same after a write
 * tell LOW HIGH		has an IOMMU of AMD's kind carry out a command; 0
 * passed FIRST THIRD ADDRESS DATA
 *				forges these words of edu's entry in the device table of such an
 *				IOMMU, -1 for Linux's own, tells it, and has edu send that message
 *				to the window of messages; 0
 * table FIRST THIRD		has such an IOMMU use another table of devices, with such an entry,
 *				all else as in Linux's; 0
 * while OFFSET VALUE ADDRESS DATA
 *				edu sends that message while a register of such an IOMMU has that
 *				value; 0, or -5 if it reads as another one
 * untable			has it use Linux's again; 0
 * alone ADDRESS DATA		edu sends that message, and nothing is forged; 0
 * dma map HOW ADDRESS TO	forges what translates an address of edu's, see map() in dma.c; 0,
 *				or -14 if a store faults
 * dma forget			the IOMMU forgets all translations; 0
 * dma revert			the entries are as before, and the IOMMU is not told; 0
 * dma undo			all that was forged is as before; 0
 * dma random SEED COUNT ADDRESS TO
 *				COUNT random entries in tables for ADDRESS; how many stores fault,
 *				how many ways to TO the device tries then, and how many lead there
 * dma read ADDRESS		eight bytes that edu reads there, or "nothing"
 * dma write ADDRESS VALUE	edu writes them there; 0
 * dma hold VALUE		edu keeps that value, and writes it in half of the time; nothing is
 *				forged; 0
 * dma linux			"fine" if edu reaches what Linux maps for it by its own functions
 * dma peek ADDRESS		eight bytes that the processor reads there
 * clock FIELD VALUE MS		writes the page of the realm's clocks for so long, see
 *				strike_clock(); how often it did
 * hidden			how many pages Linux is not to touch, and how many it can read
 * stale load READER CPU	gives memory to a cell for which CPU is, while READER reads it; how
 *				often it was read before the cell got contents, and how often since
 * stale start READER CPU	the same of a cell that starts without contents, on a CPU that is
 *				offline
 * share CELL CPU		gives the cell pages to share, and one to a new cell for CPU; what
 *				came of that, see attack_share()
 * offer STATE PROCESS PID PARENT
 *				offers the realm the last slot by hand, see offer(); what its kernel
 *				asks there first, or "nothing"
 * signal PID NUMBER		tells the realm of a signal that its shadow never got; at how many
 *				of its threads
 * dead				0; the channel says that the realm's kernel has died
 * unseal			0; the channel says that the realm is not sealed
 * wished			how many devices the realm is to have
 * revocations off		crtos' module carries out none of them; 0
 * revocations on		it does again; how many times it was to, meanwhile
 *
 * nmi and storm say how many were sent, and how many the target has handled.
 */
#include <linux/acpi.h>
#include <linux/bits.h>
#include <linux/completion.h>
#include <linux/cpumask.h>
#include <linux/debugfs.h>
#include <linux/delay.h>
#include <linux/gfp.h>
#include <linux/io.h>
#include <linux/kprobes.h>
#include <linux/kthread.h>
#include <linux/ktime.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/pid_namespace.h>
#include <linux/random.h>
#include <linux/smp.h>
#include <linux/stop_machine.h>
#include <linux/timekeeping.h>
#include <linux/uaccess.h>
#include <asm/apic.h>
#include <asm/asm.h>
#include <asm/desc_defs.h>
#include <asm/msr.h>
#include <asm/nmi.h>
#include <asm/smp.h>
#include <asm/tsc.h>

#include "amd.h"
#include "channel.h"
#include "compat.h"
#include "configuration.h"
#include "dma.h"
#include "hypercall.h"
#include "iommu.h"
#include "memory.h"
#include "random.h"

/* Bytes of a command or a result. */
#define LINE	128
/* The interrupt command register of x2APIC mode. */
#define MSR_COMMAND	0x830
/* Most microseconds between two NMIs of a sender. */
#define PAUSE	64
/* What is written there appears outside of the machine. */
#define DEBUG_PORT	0xe9
/* Where a store is a message, and how far apart the places for two local APICs are. */
#define MESSAGES	0xfee00000
#define MESSAGES_SHIFT	12
/* The first I/O APIC: its first word takes the number of a register, which is the other word. */
#define IO_APIC		0xfec00000
#define IO_APIC_DATA	0x10
#define IO_APIC_ENTRIES	0x10
/* The first HPET, and what is used of it. */
#define HPET			0xfed00000
#define HPET_CONFIGURATION	0x10
#define HPET_ON			BIT(0)
#define HPET_COUNTER		0xf0
#define HPET_COMPARATOR(n)	(0x100 + 0x20 * (n))
#define HPET_COMPARED		0x08
#define HPET_MESSAGE		0x10
#define HPET_INTERRUPTS		BIT(2)
#define HPET_32_BITS		BIT(8)
#define HPET_MESSAGES		BIT(14)
#define HPET_SOON		100000
/* QEMU's device edu: a store to the one register interrupts, one to the other ends that. */
#define EDU_RAISE	0x60
#define EDU_ACKNOWLEDGE	0x64
/* A message that names an entry of the IOMMU: its number but for the highest bit, and that. */
#define REMAPPED		BIT(4)
#define REMAPPED_LOW(index)	(((index) & 0x7fff) << 5)
#define REMAPPED_HIGH(index)	((index) >> 15 << 2)

static struct dentry *file;
static void *page;
static DEFINE_MUTEX(lock);	/* protects the result */
static char result[LINE];

/* How long an NMI may take, in milliseconds. */
#define NMI_PATIENCE	2000

static unsigned int victim;	/* of the NMI */
static const char *where;	/* it was when the NMI came; NULL: it did not come */

/* Outside of the hypervisor the call is an invalid instruction, and is skipped. */
static bool is_guest(void)
{
	s64 version = CRTOS_HC_VERSION;

	asm volatile("1: vmmcall\n2:\n" _ASM_EXTABLE(1b, 2b) : "+a" (version) : : "memory");
	return version == CRTOS_ABI_VERSION;
}

static int on_nmi(unsigned int type, struct pt_regs *regs)
{
	if (smp_processor_id() != victim)
		return NMI_DONE;
	/* Read by strike(). */
	WRITE_ONCE(where, is_guest() ? "guest" : "native");
	return NMI_HANDLED;
}

/*
 * Linux's handler of NMIs looks no further on a CPU that is offline, so it is to believe that
 * the victim is not. All other CPUs stand still meanwhile.
 */
static int strike(void *unused)
{
	struct cpumask *online = (struct cpumask *)cpu_online_mask;
	u64 command = (u64)per_cpu(x86_cpu_to_apicid, victim) << 32 | APIC_DM_NMI;
	int i;

	cpumask_set_cpu(victim, online);
	wrmsrq(APIC_BASE_MSR + (APIC_ICR >> 4), command);
	/* Stored by on_nmi(). */
	for (i = 0; i < NMI_PATIENCE && !READ_ONCE(where); i++)
		mdelay(1);
	cpumask_clear_cpu(victim, online);
	return 0;
}

static int wake_by_nmi(unsigned int cpu)
{
	int error;

	if (cpu >= nr_cpu_ids || !cpu_present(cpu) || cpu_online(cpu) || !x2apic_enabled())
		return -EINVAL;
	victim = cpu;
	where = NULL;
	error = register_nmi_handler(NMI_LOCAL, on_nmi, 0, "attack-wake");
	if (error)
		return error;
	error = stop_machine(strike, NULL, NULL);
	unregister_nmi_handler(NMI_LOCAL, "attack-wake");
	return error ?: snprintf(result, LINE, "%s\n", where ?: "nowhere");
}

/* NMIs to one CPU. */
static unsigned int target = UINT_MAX;
static atomic_t sent, handled;
static unsigned long storm_end;
static DECLARE_COMPLETION(storm_over);

static int handle_nmi(unsigned int type, struct pt_regs *regs)
{
	if (smp_processor_id() != READ_ONCE(target))
		return NMI_DONE;
	atomic_inc(&handled);
	return NMI_HANDLED;
}

static int send_nmi(void)
{
	u64 apic = per_cpu(x86_cpu_to_apicid, target);

	atomic_inc(&sent);
	return wrmsrq_safe(MSR_COMMAND, apic << 32 | APIC_DM_NMI | APIC_INT_ASSERT);
}

static int storm_sender(void *unused)
{
	while (time_before(jiffies, storm_end) && !send_nmi()) {
		udelay(get_random_u32() % PAUSE);
		cond_resched();
	}
	complete(&storm_over);
	return 0;
}

static int start_sender(unsigned int cpu)
{
	return PTR_ERR_OR_ZERO(kthread_run_on_cpu(storm_sender, NULL, cpu, "storm/%u"));
}

static int storm(unsigned int first, unsigned int second, unsigned int milliseconds)
{
	int error;

	storm_end = jiffies + msecs_to_jiffies(milliseconds);
	error = start_sender(first);
	if (error)
		return error;
	error = start_sender(second);
	if (!error)
		wait_for_completion(&storm_over);
	wait_for_completion(&storm_over);
	return error;
}

/* Aims at a CPU, has NMIs sent there, and tells what became of them. */
static int send_nmis(unsigned int cpu, unsigned int first, unsigned int second,
		     unsigned int milliseconds)
{
	int error;

	if (cpu >= nr_cpu_ids || first >= nr_cpu_ids || second >= nr_cpu_ids)
		return -EINVAL;
	WRITE_ONCE(target, cpu);
	atomic_set(&sent, 0);
	atomic_set(&handled, 0);
	error = milliseconds ? storm(first, second, milliseconds) : send_nmi();
	if (error)
		return error;
	msleep(200);
	return snprintf(result, LINE, "%d %d\n", atomic_read(&sent), atomic_read(&handled));
}

static int read_register(unsigned int cpu, u32 number)
{
	u64 value;
	int error = rdmsrq_safe_on_cpu(cpu, number, &value);

	if (error)
		return snprintf(result, LINE, "%d\n", error);
	return snprintf(result, LINE, "%#llx\n", value);
}

static int read_configuration(u32 number)
{
	unsigned long flags;
	u32 value;

	local_irq_save(flags);
	outl(0x80000000 | number, 0xcf8);
	value = inl(0xcfc);
	local_irq_restore(flags);
	return snprintf(result, LINE, "%#x\n", value);
}

static int write_string(u16 port, u8 value)
{
	const u8 *from = &value;
	int error = -EFAULT;

	asm volatile("1: outsb\n"
		     "xorl %0, %0\n"
		     "2:\n" _ASM_EXTABLE(1b, 2b)
		     : "+r" (error), "+S" (from)
		     : "d" (port)
		     : "cc", "memory");
	return snprintf(result, LINE, "%d\n", error);
}

/* The tables are another machine's. */
static int set_reset_register(u16 port, u8 value)
{
	acpi_gbl_FADT.flags |= ACPI_FADT_RESET_REGISTER;
	acpi_gbl_FADT.reset_register = (struct acpi_generic_address) {
		.space_id = ACPI_ADR_SPACE_SYSTEM_IO,
		.bit_width = BITS_PER_BYTE,
		.address = port,
	};
	acpi_gbl_FADT.reset_value = value;
	return snprintf(result, LINE, "0\n");
}

/* No exception has a handler, so the first one is the third. */
static int triple_fault(void)
{
	struct desc_ptr none = {};

	local_irq_disable();
	asm volatile("lidt %0\n"
		     "int3\n" : : "m" (none));
	return -EIO;
}

static void spin(void *unused)
{
	local_irq_disable();
	outb('H', DEBUG_PORT);
	for (;;)
		;
}

/* As crtos_leave() of crtos' module: what the call does not keep is put back. */
static void leave(void *answer)
{
	s64 number = CRTOS_HC_LEAVE;
	unsigned long flags;

	local_irq_save(flags);
	asm volatile("push %%rbp\n"
		     "mov %%ds, %%ecx\n"
		     "push %%rcx\n"
		     "mov %%es, %%ecx\n"
		     "push %%rcx\n"
		     "vmmcall\n"
		     "pop %%rcx\n"
		     "mov %%ecx, %%es\n"
		     "pop %%rcx\n"
		     "mov %%ecx, %%ds\n"
		     "pop %%rbp\n"
		     : "+a" (number)
		     :
		     : "rbx", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13",
		       "r14", "r15", "cc", "memory");
	local_irq_restore(flags);
	*(s64 *)answer = number;
}

static int leave_on(unsigned int cpu)
{
	s64 answer;
	int error = smp_call_function_single(cpu, leave, &answer, true);

	return error ?: snprintf(result, LINE, "%lld\n", answer);
}

/* Doorbells of all CPUs. */
static atomic_t rings;
static u64 flooded, flooded_index;
static ktime_t flood_end;

static void ring(void *unused)
{
	while (ktime_before(ktime_get(), flood_end))
		if (!crtos_hypercall(CRTOS_HC_DOORBELL, flooded, flooded_index, 0, 0))
			atomic_inc(&rings);
}

static int flood(u64 cell, u64 index, unsigned int milliseconds)
{
	flooded = cell;
	flooded_index = index;
	atomic_set(&rings, 0);
	flood_end = ktime_add_ms(ktime_get(), milliseconds);
	on_each_cpu(ring, NULL, true);
	return snprintf(result, LINE, "%d\n", atomic_read(&rings));
}

/* -EFAULT if the store faults. */
static int try_store(void __iomem *place, u32 value)
{
	int error = -EFAULT;

	asm volatile("1: movl %2, %1\n"
		     "xorl %0, %0\n"
		     "2:\n" _ASM_EXTABLE(1b, 2b)
		     : "+r" (error), "+m" (*(u32 __force *)place)
		     : "r" (value)
		     : "cc");
	return error;
}

static int send_message(unsigned int cpu, u32 low)
{
	void __iomem *place;
	int error;

	if (cpu >= nr_cpu_ids)
		return -EINVAL;
	place = ioremap(MESSAGES | per_cpu(x86_cpu_to_apicid, cpu) << MESSAGES_SHIFT, PAGE_SIZE);
	if (!place)
		return -ENOMEM;
	WRITE_ONCE(target, cpu);
	atomic_set(&handled, 0);
	error = try_store(place, low);
	iounmap(place);
	msleep(100);
	return snprintf(result, LINE, "%d\n", error ?: atomic_read(&handled));
}

static int send_command(unsigned int cpu, u32 low)
{
	void __iomem *apic;
	unsigned long flags;

	if (cpu >= nr_cpu_ids || x2apic_enabled())
		return -EINVAL;
	apic = ioremap(APIC_DEFAULT_PHYS_BASE, PAGE_SIZE);
	if (!apic)
		return -ENOMEM;
	WRITE_ONCE(target, cpu);
	atomic_set(&handled, 0);
	local_irq_save(flags);
	writel(SET_XAPIC_DEST_FIELD(per_cpu(x86_cpu_to_apicid, cpu)), apic + APIC_ICR2);
	writel(low, apic + APIC_ICR);
	local_irq_restore(flags);
	iounmap(apic);
	msleep(100);
	return snprintf(result, LINE, "%d\n", atomic_read(&handled));
}

/* The comparator is off afterwards. All stores but those of the message have 64 bits. */
static int send_by_timer(unsigned int number, u32 address, u32 data)
{
	u32 what = HPET_MESSAGES | HPET_INTERRUPTS | HPET_32_BITS;
	const u32 words[2] = { data, address };
	void __iomem *hpet, *comparator;
	bool may;
	int last;

	if (number >= 32)
		return -EINVAL;
	hpet = ioremap(HPET, PAGE_SIZE);
	if (!hpet)
		return -ENOMEM;
	comparator = hpet + HPET_COMPARATOR(number);
	writeq(0, comparator);
	writel(data, comparator + HPET_MESSAGE);
	writel(address, comparator + HPET_MESSAGE + 4);
	writeq(readq(hpet + HPET_CONFIGURATION) | HPET_ON, hpet + HPET_CONFIGURATION);
	writeq(what, comparator);
	may = readl(comparator) & HPET_MESSAGES;
	writeq(readl(hpet + HPET_COUNTER) + HPET_SOON, comparator + HPET_COMPARED);
	msleep(50);
	/* A message that is allowed does not become another one, whichever word comes last. */
	for (last = 0; last < 2; last++) {
		writel(readl(comparator) & ~HPET_MESSAGES, comparator);
		writeq((u64)MESSAGES << 32, comparator + HPET_MESSAGE);
		writel(what, comparator);
		writel(words[!last], comparator + HPET_MESSAGE + 4 * !last);
		writel(words[last], comparator + HPET_MESSAGE + 4 * last);
		may |= readl(comparator) & HPET_MESSAGES;
		writeq(readl(hpet + HPET_COUNTER) + HPET_SOON, comparator + HPET_COMPARED);
		msleep(50);
	}
	writeq(0, comparator);
	iounmap(hpet);
	return snprintf(result, LINE, "%d\n", may);
}

static int aim_timer(unsigned int number, u32 address, u32 data)
{
	void __iomem *hpet = number < 32 ? ioremap(HPET, PAGE_SIZE) : NULL;
	void __iomem *comparator = hpet + HPET_COMPARATOR(number);

	if (!hpet)
		return -ENOMEM;
	writel(0, comparator);
	writel(data, comparator + HPET_MESSAGE);
	writel(address, comparator + HPET_MESSAGE + 4);
	writel(HPET_MESSAGES | HPET_32_BITS, comparator);
	iounmap(hpet);
	return snprintf(result, LINE, "0\n");
}

static int show_timer(unsigned int number)
{
	void __iomem *hpet = number < 32 ? ioremap(HPET, PAGE_SIZE) : NULL;
	bool may;

	if (!hpet)
		return -ENOMEM;
	may = readl(hpet + HPET_COMPARATOR(number)) & HPET_MESSAGES;
	iounmap(hpet);
	return snprintf(result, LINE, "%d\n", may);
}

/* Has an instruction store VALUE to PLACE; -EFAULT if it faults. */
#define TRY(instruction) ({						\
	int error = -EFAULT;						\
									\
	asm volatile("1: " instruction "\n"				\
		     "xorl %0, %0\n"					\
		     "2:\n" _ASM_EXTABLE(1b, 2b)			\
		     : "+r" (error), "+m" (*(u64 *)place), "+a" (value)	\
		     : : "cc", "memory");				\
	error;								\
})

/* With these words, or by that instruction. */
static int try_kind(const char *kind, void *place, u64 value)
{
	if (!strcmp(kind, "byte"))
		return TRY("movb %b2, %1");
	if (!strcmp(kind, "word"))
		return TRY("movw %w2, %1");
	if (!strcmp(kind, "long"))
		return TRY("movl %k2, %1");
	if (!strcmp(kind, "quad"))
		return TRY("movq %q2, %1");
	if (!strcmp(kind, "movnti"))
		return TRY("movntil %k2, %1");
	if (!strcmp(kind, "xchg"))
		return TRY("xchgl %k2, %1");
	if (!strcmp(kind, "or"))
		return TRY("orl %k2, %1");
	if (!strcmp(kind, "and"))
		return TRY("andl %k2, %1");
	if (!strcmp(kind, "add"))
		return TRY("lock addl %k2, %1");
	if (!strcmp(kind, "bts"))
		return TRY("lock btsl $14, %1");
	return -EINVAL;
}

static int store(const char *kind, u64 address, u64 value)
{
	void __iomem *page = ioremap(address & PAGE_MASK, PAGE_SIZE);
	int error;

	if (!page)
		return -ENOMEM;
	error = try_kind(kind, (void __force *)page + offset_in_page(address), value);
	iounmap(page);
	return snprintf(result, LINE, "%d\n", error);
}

/* The device is as it was afterwards. */
static int send_by_edu(struct pci_dev *edu, u64 address, u16 data)
{
	u8 message = pci_find_capability(edu, PCI_CAP_ID_MSI);
	void __iomem *registers;
	u16 command;

	if (!message)
		return -ENODEV;
	registers = pci_iomap(edu, 0, PAGE_SIZE);
	if (!registers)
		return -ENOMEM;
	pci_read_config_word(edu, PCI_COMMAND, &command);
	pci_write_config_word(edu, PCI_COMMAND,
			      command | PCI_COMMAND_MEMORY | PCI_COMMAND_MASTER);
	pci_write_config_dword(edu, message + PCI_MSI_ADDRESS_LO, address);
	pci_write_config_dword(edu, message + PCI_MSI_ADDRESS_HI, address >> 32);
	pci_write_config_word(edu, message + PCI_MSI_DATA_64, data);
	pci_write_config_word(edu, message + PCI_MSI_FLAGS, PCI_MSI_FLAGS_ENABLE);
	writel(1, registers + EDU_RAISE);
	writel(1, registers + EDU_ACKNOWLEDGE);
	pci_write_config_word(edu, message + PCI_MSI_FLAGS, 0);
	pci_write_config_word(edu, PCI_COMMAND, command);
	pci_iounmap(edu, registers);
	return snprintf(result, LINE, "0\n");
}

static int send_message_of_edu(u32 low_of_address, u16 data)
{
	struct pci_dev *edu = attack_find_edu();
	int error;

	if (!edu)
		return -ENODEV;
	error = send_by_edu(edu, MESSAGES | low_of_address, data);
	pci_dev_put(edu);
	return error;
}

static int send_by_device(unsigned int cpu, u16 low)
{
	if (cpu >= nr_cpu_ids)
		return -EINVAL;
	return send_message_of_edu(per_cpu(x86_cpu_to_apicid, cpu) << MESSAGES_SHIFT, low);
}

/* The entry of the device is Linux's afterwards. */
static int send_amd_remapped(unsigned int index, u64 low, u64 high)
{
	int error = attack_amd_remapping(index, low, high) ?: send_message_of_edu(0, index);

	msleep(20);
	return attack_amd_remapping(index, 0, 0) ?: attack_amd_restore() ?: error;
}

/* The entry is as an unused one afterwards. */
static int send_remapped(unsigned int index, u64 low, u64 high)
{
	int error = attack_remapping(index, low, high);

	if (error == -ENODEV)
		return send_amd_remapped(index, low, high);

	if (!error)
		error = send_message_of_edu(REMAPPED | REMAPPED_LOW(index) | REMAPPED_HIGH(index),
					    0);
	/* It has arrived before the entry changes. */
	msleep(20);
	return attack_remapping(index, 0, 0) ?: error;
}

static int send_passed(u64 first, u64 third, u32 low_of_address, u16 data)
{
	int error = attack_amd_entry(first, third) ?: send_message_of_edu(low_of_address, data);

	msleep(20);
	return attack_amd_restore() ?: error;
}

struct message {
	u32 low_of_address;
	u16 data;
};

static int send_as_told(void *argument)
{
	const struct message *message = argument;
	int length = send_message_of_edu(message->low_of_address, message->data);

	return length < 0 ? length : 0;
}

static int send_while(unsigned int offset, u64 value, u32 low_of_address, u16 data)
{
	struct message message = { low_of_address, data };

	return attack_amd_while(offset, value, send_as_told, &message) ?:
	       snprintf(result, LINE, "0\n");
}

static int tell_unit(u64 low, u64 high)
{
	const struct attack_amd_command command = { .low = low, .high = high };

	return attack_amd_tell(&command, 1) ?: snprintf(result, LINE, "0\n");
}

static int access_unit(unsigned int offset, const u64 *value)
{
	u32 found;
	int error = attack_unit(offset, value, &found);

	return error ?: snprintf(result, LINE, "%#x\n", found);
}

static int redirect(unsigned int pin, const u64 *value, unsigned int offset)
{
	void __iomem *io_apic, *place;
	u64 entry;

	if (offset > PAGE_SIZE - IO_APIC_DATA - 4)
		return -EINVAL;
	io_apic = ioremap(IO_APIC, PAGE_SIZE);
	if (!io_apic)
		return -ENOMEM;
	place = io_apic + offset;
	if (value) {
		writel(IO_APIC_ENTRIES + 2 * pin + 1, place);
		writel(*value >> 32, place + IO_APIC_DATA);
		writel(IO_APIC_ENTRIES + 2 * pin, place);
		writel(*value, place + IO_APIC_DATA);
		/* The upper half of this goes where no register is. */
		writeq((u32)*value, place + IO_APIC_DATA);
	}
	writel(IO_APIC_ENTRIES + 2 * pin + 1, io_apic);
	entry = (u64)readl(io_apic + IO_APIC_DATA) << 32;
	writel(IO_APIC_ENTRIES + 2 * pin, io_apic);
	entry |= readl(io_apic + IO_APIC_DATA);
	iounmap(io_apic);
	return snprintf(result, LINE, "%#llx\n", value ? 0 : entry);
}

static int redirect_upper(unsigned int pin, u32 value)
{
	void __iomem *io_apic = ioremap(IO_APIC, PAGE_SIZE);

	if (!io_apic)
		return -ENOMEM;
	writel(IO_APIC_ENTRIES + 2 * pin + 1, io_apic);
	writel(value, io_apic + IO_APIC_DATA);
	iounmap(io_apic);
	return snprintf(result, LINE, "0\n");
}

/*
 * step: Linux's clocks are ahead by so many nanoseconds, or behind. mult, shift: the number
 * there. odd: the page is being written.
 */
static int strike_clock(const char *field, s64 value, unsigned int milliseconds)
{
	struct crtos_channel *channel = attack_find_channel();
	unsigned long end = jiffies + msecs_to_jiffies(milliseconds);
	struct crtos_time_page *time;
	int times = 0;

	if (!channel)
		return -ENODEV;
	for (time = &channel->time; time_before(jiffies, end); times++) {
		if (!strcmp(field, "step")) {
			WRITE_ONCE(time->tsc_base, rdtsc_ordered());
			WRITE_ONCE(time->monotonic, ktime_get_ns() + value);
			WRITE_ONCE(time->raw, ktime_get_raw_ns() + value);
		} else if (!strcmp(field, "mult")) {
			WRITE_ONCE(time->mult, value);
			WRITE_ONCE(time->raw_mult, value);
		} else if (!strcmp(field, "shift")) {
			WRITE_ONCE(time->shift, value);
		} else if (!strcmp(field, "odd")) {
			WRITE_ONCE(time->sequence, READ_ONCE(time->sequence) | 1);
		} else {
			return -EINVAL;
		}
		usleep_range(100, 200);
	}
	return snprintf(result, LINE, "%d\n", times);
}

/*
 * A shadow that there is not, as one of any process of Linux's first pid namespace, forked by the
 * thread of slot PARENT - 1. It is gone afterwards.
 */
static int offer(u32 state, u32 process, u32 pid, u32 parent)
{
	const u32 slot = CRTOS_SLOTS - 1;
	struct crtos_slot_owner owner = {
		.process = process,
		.pid = pid,
		.tid = pid,
		.parent = parent,
		.pid_namespace = init_pid_ns.ns.inum,
		.own_tid = pid,
	};
	struct crtos_channel *channel = attack_find_channel();
	struct crtos_request request;
	bool taken = false;
	int i;

	if (!channel)
		return -ENODEV;
	if (crtos_channel_state(channel, slot) != CRTOS_SLOT_FREE)
		return -EBUSY;
	crtos_channel_open(channel, slot, state, &owner);
	crtos_hypercall(CRTOS_HC_DOORBELL, 0, 0, 0, 0);
	for (i = 0; i < 200 && !taken; i++) {
		usleep_range(10000, 11000);
		taken = crtos_channel_take_request(channel, slot, &request);
	}
	crtos_channel_notice(channel, slot, CRTOS_SLOT_GONE);
	crtos_hypercall(CRTOS_HC_DOORBELL, 0, 0, 0, 0);
	for (i = 0; i < 1000 && crtos_channel_state(channel, slot) != CRTOS_SLOT_FREE; i++)
		usleep_range(10000, 11000);
	if (!taken)
		return snprintf(result, LINE, "nothing\n");
	return snprintf(result, LINE, "%u\n", request.op);
}

static int forge_signal(u32 pid, u32 number)
{
	struct crtos_channel *channel = attack_find_channel();
	const u64 info[6] = { number };
	int slot, forged = 0;

	if (!channel)
		return -ENODEV;
	for (slot = 0; slot < CRTOS_SLOTS; slot++)
		if (crtos_channel_state(channel, slot) != CRTOS_SLOT_FREE &&
		    READ_ONCE(channel->slots[slot].pid) == pid)
			forged += crtos_channel_signal(channel, slot, info);
	crtos_hypercall(CRTOS_HC_DOORBELL, 0, 0, 0, 0);
	return snprintf(result, LINE, "%d\n", forged);
}

static int say_dead(void)
{
	struct crtos_channel *channel = attack_find_channel();

	if (!channel)
		return -ENXIO;
	WRITE_ONCE(channel->kernel_state, CRTOS_KERNEL_DEAD);
	return snprintf(result, LINE, "0\n");
}

static int unseal(void)
{
	struct crtos_channel *channel = attack_find_channel();

	if (!channel)
		return -ENODEV;
	WRITE_ONCE(channel->kernel_state, CRTOS_KERNEL_READY);
	WRITE_ONCE(channel->seal.asked, 0);
	WRITE_ONCE(channel->seal.answered, 0);
	return snprintf(result, LINE, "0\n");
}

static int count_wishes(void)
{
	struct crtos_channel *channel = attack_find_channel();
	int place, count = 0;

	if (!channel)
		return -ENODEV;
	for (place = 0; place < CRTOS_MAX_DEVICES; place++)
		count += !!READ_ONCE(channel->wanted_devices[place].function);
	return snprintf(result, LINE, "%d\n", count);
}

/*
 * Pages that Linux is to let go and does not: the function of crtos' module that does it returns
 * at once.
 */
static atomic_t asked;

static void nothing(void)
{
}

static int skip_function(struct kprobe *probe, struct pt_regs *regs)
{
	atomic_inc(&asked);
	instruction_pointer_set(regs, (unsigned long)nothing);
	return 1;
}

NOKPROBE_SYMBOL(skip_function);

static struct kprobe revocations_run = {
	.symbol_name = "crtos_revocations_run",
	.pre_handler = skip_function,
};

static bool revocations_off;

static int set_revocations(bool on)
{
	int error = 0;

	if (revocations_off == !on)
		return -EINVAL;
	if (on) {
		unregister_kprobe(&revocations_run);
		revocations_off = false;
		return snprintf(result, LINE, "%d\n", atomic_read(&asked));
	}
	atomic_set(&asked, 0);
	/* A kprobe that was registered before keeps what it has found out. */
	revocations_run.addr = NULL;
	revocations_run.flags = 0;
	error = register_kprobe(&revocations_run);
	revocations_off = !error;
	return error ?: snprintf(result, LINE, "0\n");
}

static int carry_out(const char *command)
{
	u64 number, a = 0, b = 0, c = 0, d = 0;
	unsigned int cpu, first, second, milliseconds;
	char field[8];

	if (sscanf(command, "hypercall %lli %lli %lli %lli %lli", &number, &a, &b, &c, &d) > 0)
		return snprintf(result, LINE, "%lld\n", crtos_hypercall(number, a, b, c, d));
	if (sscanf(command, "wake %u", &cpu) == 1)
		return wake_by_nmi(cpu);
	if (sscanf(command, "rdmsr %u %lli", &cpu, &a) == 2)
		return read_register(cpu, a);
	if (sscanf(command, "wrmsr %u %lli %lli", &cpu, &a, &b) == 3)
		return snprintf(result, LINE, "%d\n", wrmsrq_safe_on_cpu(cpu, a, b));
	if (sscanf(command, "inb %lli", &a) == 1)
		return snprintf(result, LINE, "%#x\n", inb(a));
	if (sscanf(command, "outb %lli %lli", &a, &b) == 2) {
		outb(b, a);
		return snprintf(result, LINE, "0\n");
	}
	if (sscanf(command, "outw %lli %lli", &a, &b) == 2) {
		outw(b, a);
		return snprintf(result, LINE, "0\n");
	}
	if (sscanf(command, "outs %lli %lli", &a, &b) == 2)
		return write_string(a, b);
	if (sscanf(command, "pci %lli %u %lli %lli", &a, &first, &b, &c) == 4)
		return attack_configure(a, first, b, c) ?: snprintf(result, LINE, "0\n");
	if (sscanf(command, "race %lli %lli %lli %u", &a, &b, &c, &milliseconds) == 4)
		return attack_race(a, b, c, milliseconds) ?: snprintf(result, LINE, "0\n");
	if (sscanf(command, "pci %lli", &a) == 1)
		return read_configuration(a);
	if (sscanf(command, "resets %lli %lli", &a, &b) == 2)
		return set_reset_register(a, b);
	if (sysfs_streq(command, "triple"))
		return triple_fault();
	if (sysfs_streq(command, "hang"))
		on_each_cpu(spin, NULL, false);
	if (sscanf(command, "nmi %u", &cpu) == 1)
		return send_nmis(cpu, 0, 0, 0);
	if (sscanf(command, "storm %u %u %u %u", &cpu, &first, &second, &milliseconds) == 4)
		return send_nmis(cpu, first, second, milliseconds);
	if (sscanf(command, "leave %u", &cpu) == 1)
		return leave_on(cpu);
	if (!strncmp(command, "random ", 7))
		return attack_at_random(command + 7, result, LINE);
	if (sscanf(command, "message %u %lli", &cpu, &a) == 2)
		return send_message(cpu, a);
	if (sscanf(command, "command %u %lli", &cpu, &a) == 2)
		return send_command(cpu, a);
	if (sscanf(command, "timer %u %lli %lli", &first, &a, &b) == 3)
		return send_by_timer(first, a, b);
	if (sscanf(command, "timer %u", &first) == 1)
		return show_timer(first);
	if (sscanf(command, "aim %u %lli %lli", &first, &a, &b) == 3)
		return aim_timer(first, a, b);
	if (sscanf(command, "store %7s %lli %lli", field, &a, &b) == 3)
		return store(field, a, b);
	if (sscanf(command, "device %u %lli", &cpu, &a) == 2)
		return send_by_device(cpu, a);
	if (sscanf(command, "remapped %u %lli %lli", &first, &a, &b) == 3)
		return send_remapped(first, a, b);
	if (sscanf(command, "passed %lli %lli %lli %lli", &a, &b, &c, &d) == 4)
		return send_passed(a, b, c, d);
	if (sscanf(command, "table %lli %lli", &a, &b) == 2)
		return attack_amd_table(a, b) ?: snprintf(result, LINE, "0\n");
	if (sysfs_streq(command, "untable"))
		return attack_amd_restore_table() ?: snprintf(result, LINE, "0\n");
	if (sscanf(command, "while %lli %lli %lli %lli", &a, &b, &c, &d) == 4)
		return send_while(a, b, c, d);
	if (sscanf(command, "alone %lli %lli", &a, &b) == 2)
		return send_message_of_edu(a, b);
	if (sscanf(command, "tell %lli %lli", &a, &b) == 2)
		return tell_unit(a, b);
	if (sscanf(command, "unit %lli %lli", &a, &b) == 2)
		return access_unit(a, &b);
	if (sscanf(command, "unit %lli", &a) == 1)
		return access_unit(a, NULL);
	if (!strncmp(command, "dma ", 4))
		return attack_by_dma(command + 4, result, LINE);
	if (sscanf(command, "flood %lli %lli %u", &a, &b, &milliseconds) == 3)
		return flood(a, b, milliseconds);
	if (sscanf(command, "redirect %u %lli %u", &first, &a, &second) == 3)
		return redirect(first, &a, second);
	if (sscanf(command, "redirect %u", &first) == 1)
		return redirect(first, NULL, 0);
	if (sscanf(command, "upper %u %lli", &first, &a) == 2)
		return redirect_upper(first, a);
	if (sscanf(command, "clock %7s %lli %u", field, &a, &milliseconds) == 3)
		return strike_clock(field, a, milliseconds);
	if (sysfs_streq(command, "hidden"))
		return attack_hidden(result, LINE);
	if (sscanf(command, "stale load %u %u", &first, &cpu) == 2)
		return attack_stale(false, first, cpu, result, LINE);
	if (sscanf(command, "stale start %u %u", &first, &cpu) == 2)
		return attack_stale(true, first, cpu, result, LINE);
	if (sscanf(command, "share %u %u", &first, &cpu) == 2)
		return attack_share(first, cpu, result, LINE);
	if (sscanf(command, "offer %u %u %u %u", &cpu, &first, &second, &milliseconds) == 4)
		return offer(cpu, first, second, milliseconds);
	if (sscanf(command, "signal %u %u", &first, &second) == 2)
		return forge_signal(first, second);
	if (sysfs_streq(command, "dead"))
		return say_dead();
	if (sysfs_streq(command, "unseal"))
		return unseal();
	if (sysfs_streq(command, "wished"))
		return count_wishes();
	if (sysfs_streq(command, "revocations off"))
		return set_revocations(false);
	if (sysfs_streq(command, "revocations on"))
		return set_revocations(true);
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
	.llseek = default_llseek,
};

static int __init attack_init(void)
{
	int error;

	page = (void *)get_zeroed_page(GFP_KERNEL);
	if (!page)
		return -ENOMEM;
	error = register_nmi_handler(NMI_LOCAL, handle_nmi, 0, "attack");
	if (error) {
		free_page((unsigned long)page);
		return error;
	}
	file = debugfs_create_file("attack", 0600, NULL, NULL, &operations);
	return 0;
}

static void __exit attack_exit(void)
{
	debugfs_remove(file);
	attack_end_dma();
	if (revocations_off)
		set_revocations(true);
	unregister_nmi_handler(NMI_LOCAL, "attack");
	free_page((unsigned long)page);
}

module_init(attack_init);
module_exit(attack_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("What a compromised Linux kernel could do");
