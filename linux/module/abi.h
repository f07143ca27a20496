/* SPDX-License-Identifier: GPL-2.0-only */
/* Generated from the crate crtos-abi; see lib/abi/tests/header.rs. */

#ifndef CRTOS_ABI_H
#define CRTOS_ABI_H

#include <linux/types.h>

#define CRTOS_ABI_VERSION 1

#define CRTOS_PAGE_SIZE 4096

#define CRTOS_LARGE_PAGE_SIZE 2097152

#define CRTOS_MAX_CPUS 256

#define CRTOS_MAX_CELL_CPUS 32

#define CRTOS_MAX_CELLS 16

#define CRTOS_BOOT_INFO_ADDRESS 4096

#define CRTOS_INITIAL_TABLES 65536

#define CRTOS_INITIAL_TABLES_SIZE (7 * 4096)

#define CRTOS_IMAGE_ADDRESS 2097152

#define CRTOS_CHANNEL_ADDRESS 3221225472

#define CRTOS_SHARED_POOL 4294967296

#define CRTOS_MAX_PRIVATE 2147483648

#define CRTOS_DIRECT_MAP 18446603336221196288ull

#define CRTOS_KERNEL_BASE 18446744071562067968ull

#define CRTOS_BOOT_MAGIC 3551442706738991683

#define CRTOS_CELL_NAME_LEN 32

#define CRTOS_MAX_PORT_RANGES 16

#define CRTOS_MAX_MSR_RANGES 16

#define CRTOS_PORT_EXCLUSIVE 1

#define CRTOS_MSR_READ 1

#define CRTOS_MSR_WRITE 2

#define CRTOS_REGION_WRITE 1

#define CRTOS_REGION_EXECUTE 2

#define CRTOS_REGION_PRIVATE 4

#define CRTOS_CHANNEL_MAGIC 3551162331273908803

#define CRTOS_SLOTS 1024

#define CRTOS_SLOT_WORDS 16

#define CRTOS_PARENT_PROCESS 16

#define CRTOS_IDS_UNCERTAIN 1

#define CRTOS_IDS_FOREIGN 2

#define CRTOS_REVOCATIONS 1024

#define CRTOS_REVOCATION_WORDS 16

#define CRTOS_SUCCESSORS 256

#define CRTOS_SUCCESSOR_WORDS (CRTOS_SUCCESSORS / 64)

#define CRTOS_KERNEL_LOG_SIZE 262144

#define CRTOS_LAST_WORDS_SIZE 131072

#define CRTOS_SLOT_FREE 0

#define CRTOS_SLOT_SPAWN 1

#define CRTOS_SLOT_READY 2

#define CRTOS_SLOT_REQUEST 3

#define CRTOS_SLOT_BUSY 4

#define CRTOS_SLOT_FAULT 5

#define CRTOS_SLOT_ANSWER 6

#define CRTOS_SLOT_REPLY 7

#define CRTOS_SLOT_GONE 1

#define CRTOS_SLOT_SIGNAL 2

#define CRTOS_SLOT_STOPPED 4

#define CRTOS_SLOT_LEAVING 8

#define CRTOS_RANK_IDLE 0

#define CRTOS_RANK_NORMAL 1

#define CRTOS_RANK_ABSENT 4294967295

#define CRTOS_OP_SYSCALL 0

#define CRTOS_OP_STARTUP 1

#define CRTOS_OP_EXIT 2

#define CRTOS_OP_EXIT_SIGNAL 3

#define CRTOS_OP_THREAD 4

#define CRTOS_OP_THREAD_EXIT 5

#define CRTOS_OP_SIGNAL_ACTION 6

#define CRTOS_OP_SIGNAL_FORWARD 7

#define CRTOS_OP_SIGNALS_BLOCKED 8

#define CRTOS_OP_FORK 9

#define CRTOS_OP_EXEC 10

#define CRTOS_OP_SCHEDULING 11

#define CRTOS_OP_SET_SCHEDULING 12

#define CRTOS_OP_COPY 13

#define CRTOS_OP_STATUS 14

#define CRTOS_OP_TOPOLOGY 15

#define CRTOS_OP_DESCRIPTOR_LIMITS 16

#define CRTOS_OP_DESCRIPTORS_IN_USE 17

#define CRTOS_OP_PLACE_DESCRIPTORS 18

#define CRTOS_OP_OPEN_DEVICE 19

#define CRTOS_OP_DEVICE_STATUS 20

#define CRTOS_OP_READ 21

#define CRTOS_OP_KEEP 22

#define CRTOS_OP_LET_GO 23

#define CRTOS_OP_IS_CAPABLE 24

#define CRTOS_OP_SEGMENT 25

#define CRTOS_OP_LIMITS 26

#define CRTOS_OP_REFUSE 27

#define CRTOS_OP_REGISTERS 28

#define CRTOS_OP_SHARE 29

#define CRTOS_OP_ASK_EXECUTABLE 30

#define CRTOS_OP_MEMORY_LIMITS 31

#define CRTOS_OP_FILE_NAME 32

#define CRTOS_OP_MAY 33

#define CRTOS_MAY_SCHEDULE 0

#define CRTOS_MAY_LIMIT 1

#define CRTOS_MAY_TRACE 2

#define CRTOS_OP_SOCKET 34

#define CRTOS_OP_LOCKED 35

#define CRTOS_OP_KEEP_SUCCESSOR 36

#define CRTOS_OP_TAKE_SUCCESSOR 37

#define CRTOS_SHARE_WRITE 4294967296

#define CRTOS_SHARE_ALL 8589934592

#define CRTOS_MOST_SHARED_PAGES 64

#define CRTOS_READ_LENGTH_SHIFT 47

#define CRTOS_MOST_READ_PAGES 16

#define CRTOS_STATUS_EMPTY 4294967296

#define CRTOS_STATUS_READABLE 8589934592

#define CRTOS_STATUS_TRUSTED 17179869184

#define CRTOS_STATUS_DEVICE 34359738368

#define CRTOS_STATUS_REGISTERS 68719476736

#define CRTOS_STATUS_PORTS 137438953472

#define CRTOS_STATUS_CONFIGURATION 255

#define CRTOS_STATUS_SHARABLE 274877906944

#define CRTOS_STATUS_FUNCTION_SHIFT 8

#define CRTOS_MOST_NEW_THREADS 16

#define CRTOS_INTERRUPT_SIGNAL 64

#define CRTOS_RESULT_NOT_MADE -512

#define CRTOS_RESULT_IN_LINUX -513

#define CRTOS_FAULT_WRITE 1

#define CRTOS_ANSWER_WRITE 1

#define CRTOS_ANSWER_BAD 18446744073709551615ull

#define CRTOS_THREAD_NONE 0

#define CRTOS_THREAD_RUNNING 1

#define CRTOS_THREAD_SLEEPING 2

#define CRTOS_THREAD_REMOTE 3

#define CRTOS_THREAD_EXITED 4

#define CRTOS_REVOCATION_FREE 0

#define CRTOS_REVOCATION_POSTED 1

#define CRTOS_REVOCATION_DONE 2

#define CRTOS_KERNEL_NONE 0

#define CRTOS_KERNEL_READY 1

#define CRTOS_KERNEL_DEAD 2

#define CRTOS_KERNEL_SEALED 3

#define CRTOS_NAMED_USERS 14

#define CRTOS_DESCRIPTION_LEN 128

#define CRTOS_WANTED_LEVEL 2147483648

#define CRTOS_ETHERNET_PLACES 64

#define CRTOS_ETHERNET_PLACE 2048

#define CRTOS_ETHERNET_BYTES (CRTOS_ETHERNET_PLACES * CRTOS_ETHERNET_PLACE)

#define CRTOS_ETHERNET_MOST_MTU 9000

#define CRTOS_ETHERNET_LONGEST ((14 + 4) + CRTOS_ETHERNET_MOST_MTU)

#define CRTOS_DEVICE_VECTOR 208

#define CRTOS_DEVICE_VECTORS 16

#define CRTOS_LINUX_RUNS 0

#define CRTOS_LINUX_ENDED 1

#define CRTOS_TRACE_EVENTS 32768

#define CRTOS_TRACE_KERNEL_THREAD 2147483648

#define CRTOS_TRACE_SWITCH 1

#define CRTOS_TRACE_WAKE 2

#define CRTOS_TRACE_INTERRUPT 3

#define CRTOS_TIMER_VECTOR 236

#define CRTOS_KICK_VECTOR 237

#define CRTOS_TRACE_INTERRUPT_END 4

#define CRTOS_TRACE_CALL 5

#define CRTOS_TRACE_CALL_END 6

#define CRTOS_TRACE_REMOTE 7

#define CRTOS_TRACE_REMOTE_END 8

#define CRTOS_TRACE_FAULT 9

#define CRTOS_TRACE_DOORBELL 10

#define CRTOS_TRACE_FAULT_END 11

#define CRTOS_TRACE_LAPSE 12

#define CRTOS_TRACE_REGISTERS 13

#define CRTOS_TRACE_STACK 14

#define CRTOS_TRACE_MAPPING 15

#define CRTOS_TRACE_PATH 16

#define CRTOS_TRACE_MAPPED 17

#define CRTOS_LAPSE_REMOTE 1

#define CRTOS_LAPSE_FAULT 2

#define CRTOS_LAPSE_MEMORY 3

#define CRTOS_TRACE_WANT_EVENTS 1

#define CRTOS_TRACE_WANT_LAPSES 2

#define CRTOS_TRACE_WANT_STACKS 4

#define CRTOS_TRACE_STACK_BYTES 4096

#define CRTOS_SECTIONS 8

#define CRTOS_SHADOW_START 138538465099776

#define CRTOS_SHADOW_END 139637976727552

#define CRTOS_MIRRORS_START (CRTOS_SHADOW_START + 4294967296)

#define CRTOS_MIRRORS_END CRTOS_SHADOW_END

#define CRTOS_USER_START 65536

#define CRTOS_USER_END 140737488351232

#define CRTOS_MAX_DEVICES 16

#define CRTOS_MAX_MESSAGES 64

#define CRTOS_MAX_LINES 16

#define CRTOS_BASE_ADDRESSES 6

#define CRTOS_MAX_BRIDGES 8

#define CRTOS_DEVICE_MEMORY 3758096384

#define CRTOS_DEVICE_MEMORY_END 4026531840

#define CRTOS_MAX_DEVICE_MEMORY 16777216

#define CRTOS_DEVICE_WITHOUT_MEMORY 1

#define CRTOS_DEVICE_PLATFORM 2

#define CRTOS_DEVICE_PIN 4

#define CRTOS_LISTED_WITHOUT_MEMORY 65536

#define CRTOS_LISTED_PLATFORM 131072

#define CRTOS_LISTED_WIDTH_SHIFT 24

#define CRTOS_MAPPED_READ 1

#define CRTOS_MAPPED_WRITE 2

#define CRTOS_MAX_MAPPED_PAGES 64

#define CRTOS_MAX_DEVICE_TABLES 512

#define CRTOS_HC_VERSION 0

#define CRTOS_HC_LEAVE 1

#define CRTOS_HC_CELL_CREATE 2

#define CRTOS_HC_CELL_MAP 3

#define CRTOS_HC_CELL_LOAD 4

#define CRTOS_HC_CELL_START 5

#define CRTOS_HC_CELL_STOP 6

#define CRTOS_HC_CELL_RECLAIM 7

#define CRTOS_HC_CELL_DESTROY 8

#define CRTOS_HC_DOORBELL_ROUTE 9

#define CRTOS_HC_DOORBELL 10

#define CRTOS_HC_PUTC 11

#define CRTOS_HC_ROOT_STATE 12

#define CRTOS_HC_CELL_LOCK 13

#define CRTOS_HC_CELL_UNLOCK 14

#define CRTOS_HC_ADDRESS 15

#define CRTOS_HC_DEVICE_ADD 16

#define CRTOS_HC_DEVICE_REMOVE 17

#define CRTOS_HC_DEVICE_LIST 18

#define CRTOS_HC_DEVICE_READ 19

#define CRTOS_HC_DEVICE_WRITE 20

#define CRTOS_HC_DEVICE_INTERRUPT 21

#define CRTOS_HC_LINE_ADD 22

#define CRTOS_HC_LINE_INTERRUPT 23

#define CRTOS_HC_DEVICE_MAP 24

#define CRTOS_HC_DEVICE_UNMAP 25

#define CRTOS_HC_LINE_REMOVE 26

#define CRTOS_HC_PLACES_LEAVE 27

#define CRTOS_HC_PLACE_HELD 28

#define CRTOS_HC_CELL_LINK 29

#define CRTOS_NO_REQUESTER ~0

#define CRTOS_ROOT_RUNS 0

#define CRTOS_ROOT_HALTED 1

#define CRTOS_DOORBELL_ANYWHERE ~0

#define CRTOS_HV_INVALID -1

#define CRTOS_HV_NO_CELL -2

#define CRTOS_HV_BUSY -3

#define CRTOS_HV_NO_MEMORY -4

#define CRTOS_HV_OWNED -5

#define CRTOS_HV_DENIED -6

#define CRTOS_HV_NO_CALL -7

#define CRTOS_HV_TIMEOUT -8

#define CRTOS_HV_LOCKED -9

#define CRTOS_HYPERVISOR_BASE 123145302310912

#define CRTOS_IMAGE_MAGIC 3555108478505996867

#define CRTOS_LAUNCH_INFO_OFFSET 512

#define CRTOS_MAX_HYPERVISOR_BLOCKS 44

#define CRTOS_MAX_WATCHDOG_PORTS 32

#define CRTOS_MAX_IO_APICS 32

#define CRTOS_MAX_HPETS 8

#define CRTOS_MAX_IOMMUS 8

#define CRTOS_MAX_CONFIGURATIONS 64

#define CRTOS_IOMMU_VTD 0

#define CRTOS_IOMMU_AMD_VI 1

#define CRTOS_MMCONFIG_SCATTERED ~0

#define CRTOS_REPORT_SIZE 262144

#define CRTOS_LAUNCH_NO_VIRTUALIZATION -1

#define CRTOS_LAUNCH_DISABLED_BY_FIRMWARE -2

#define CRTOS_LAUNCH_IN_USE -3

#define CRTOS_LAUNCH_NO_NESTED_PAGING -4

#define CRTOS_LAUNCH_VERSION -5

#define CRTOS_LAUNCH_NO_MEMORY -6

#define CRTOS_LAUNCH_BAD_INFO -7

#define CRTOS_LAUNCH_MEMORY_ENCRYPTION -8

#define CRTOS_IOC_TYPE 199

#define CRTOS_IOC_ENABLE 50945

#define CRTOS_ENABLE_CHECKED_DMA 1

#define CRTOS_IOC_DISABLE 50946

#define CRTOS_IOC_CELL_CREATE 3257452291

#define CRTOS_IOC_CELL_LOAD 1075889924

#define CRTOS_IOC_CELL_START 1075889925

#define CRTOS_IOC_CELL_STOP 50950

#define CRTOS_IOC_CELL_DESTROY 50951

#define CRTOS_IOC_KEEP 50952

#define CRTOS_IOC_CELL_LOCK 50953

#define CRTOS_IOC_CELL_SEAL 50954

#define CRTOS_IOC_DEVICE_ADD 1082705675

#define CRTOS_IOC_DEVICE_REMOVE 1082705676

#define CRTOS_IOC_INTERFACE_SHOW 1079035661

#define CRTOS_IOC_ETHERNET_ADD 3223373582

#define CRTOS_IOC_LINK_CREATE 3229140760

#define CRTOS_IOC_LINK_DESTROY 3229140761

#define CRTOS_IOC_LINK_INFO 3229140762

#define CRTOS_IOC_LINK_JOIN 3224422171

#define CRTOS_DEVICE_NO_RESET 1

#define CRTOS_DEVICE_ON_PLATFORM 2

#define CRTOS_DEVICE_PORTS 4

#define CRTOS_DEVICE_NO_INTERRUPT 8

#define CRTOS_DEVICE_DESCRIBED 16

#define CRTOS_IOC_INFO 2151728912

#define CRTOS_IOC_REPORT 1075889937

#define CRTOS_IOC_CHANNEL 1075889938

#define CRTOS_IOC_REASON 2164311827

#define CRTOS_IOC_DOORBELL 50964

#define CRTOS_DOORBELL_CPU_SHIFT 16

#define CRTOS_IOC_CHANNEL_WRITE 1075889941

#define CRTOS_IOC_TRACE 50966

#define CRTOS_IOC_SPAWN 3223373600

#define CRTOS_IOC_THREAD 50977

#define CRTOS_IOC_REMOTE 3225995042

#define CRTOS_IOC_SIGNAL 1076938531

#define CRTOS_IOC_REOPEN 50980

#define CRTOS_IOC_COPY 1075365669

#define CRTOS_CELL_FORCE 2147483648

#define CRTOS_CREATE_REALM 1

#define CRTOS_CREATE_CALLS_FOLLOW 2

#define CRTOS_FUNCTION_NAME_LEN 32

#define CRTOS_DEVICE_NAME_LEN 128

#define CRTOS_INTERFACE_CARRIER 1

#define CRTOS_INTERFACE_FULL_DUPLEX 2

#define CRTOS_INTERFACE_NAME_LEN 16

#define CRTOS_NO_CELL 4294967295

#define CRTOS_LINK_VECTOR 193

#define CRTOS_LINK_MEMORY 3355443200

#define CRTOS_LINK_SIZE_MAX 16777216

#define CRTOS_MAX_LINKS 8

#define CRTOS_MAX_LINK_PEERS 8

#define CRTOS_LINK_NAME_LEN 32

#define CRTOS_LINK_MAGIC 3552016651808690755

#define CRTOS_LINK_NO_CELL 4294967295

#define CRTOS_EXIT_NMI 0

#define CRTOS_EXIT_ICR 1

#define CRTOS_EXIT_MSR 2

#define CRTOS_EXIT_HYPERCALL 3

#define CRTOS_EXIT_NESTED_FAULT 4

#define CRTOS_EXIT_CPUID 5

#define CRTOS_EXIT_PORT 6

#define CRTOS_EXIT_APIC 7

#define CRTOS_EXIT_XSETBV 8

#define CRTOS_EXIT_HIDDEN 9

#define CRTOS_EXIT_SHUTDOWN 10

#define CRTOS_EXIT_OTHER 11

#define CRTOS_EXIT_EXCEPTION 12

#define CRTOS_EXIT_REASONS 13

#define CRTOS_CPU_ROOT 4294967295

#define CRTOS_CPU_PARKED 4294967294

#define CRTOS_CELL_NONE 0

#define CRTOS_CELL_CREATED 1

#define CRTOS_CELL_RUNNING 2

#define CRTOS_CELL_STOPPED 3

#define CRTOS_CELL_FAILED 4

#define CRTOS_CELL_LOCKED 5

#define CRTOS_MAX_FAULTING_DEVICES 16

#define CRTOS_REPORT_LOG_SIZE 131072

#define CRTOS_SHARE_WINDOW 3489660928

#define CRTOS_SHARE_WINDOW_END 3758096384

#define CRTOS_PLACES 65536

#define CRTOS_PLACE_WORDS 1024

struct crtos_image_header {
	u64 magic;
	u32 abi_version;
	u32 reserved;
	u64 image_size;
	u64 init;
	u64 enter;
};

struct crtos_iommu {
	u64 address;
	u64 size;
	u32 kind;
	u32 function;
};

struct crtos_configuration {
	u16 function;
	u16 first;
	u16 last;
	u16 present;
};

struct crtos_launch_info {
	u64 host_cr3;
	u64 leave_trampoline;
	u64 report_address;
	u64 memory_end;
	u32 tsc_khz;
	u32 x2apic;
	u32 cpu_count;
	u32 block_count;
	u32 smi_port;
	u32 reset_port;
	u32 reset_value;
	u32 sleep_ports[3];
	u32 dma_checked;
	u32 reserved;
	u32 watchdog_port;
	u32 watchdog_ports;
	u64 io_apics[CRTOS_MAX_IO_APICS];
	u64 hpets[CRTOS_MAX_HPETS];
	struct crtos_iommu iommus[CRTOS_MAX_IOMMUS];
	struct crtos_configuration configurations[CRTOS_MAX_CONFIGURATIONS];
	u64 mmconfig;
	u64 mmconfig_buses;
	u64 blocks[CRTOS_MAX_HYPERVISOR_BLOCKS];
	u32 apic_ids[CRTOS_MAX_CPUS];
};

struct crtos_port_range {
	u16 first;
	u16 last;
	u32 flags;
};

struct crtos_msr_range {
	u32 first;
	u32 last;
	u32 flags;
};

struct crtos_cell_config {
	u8 name[CRTOS_CELL_NAME_LEN];
	u32 doorbell_vector;
	u32 link_vector;
	u32 cpu_count;
	u32 cpus[CRTOS_MAX_CELL_CPUS];
	u32 port_count;
	u32 msr_count;
	struct crtos_port_range ports[CRTOS_MAX_PORT_RANGES];
	struct crtos_msr_range msrs[CRTOS_MAX_MSR_RANGES];
};

struct crtos_region {
	u64 cell_address;
	u64 physical;
	u64 size;
	u32 flags;
	u32 reserved;
};

struct crtos_device_faults {
	u32 device;
	u32 count;
};

struct crtos_device_report {
	u16 function;
	u16 present;
	u32 cell;
};

struct crtos_cpu_report {
	u64 exits[CRTOS_EXIT_REASONS];
	u64 doorbells;
	u64 ticks;
	u32 owner;
	u32 reserved;
};

struct crtos_cell_report {
	u32 state;
	u32 cpu;
	u32 reason;
	u32 reserved;
	u64 rip;
	u64 address;
	u64 code;
	u64 qualification;
	u64 private_bytes;
	u64 shared_bytes;
	u8 name[CRTOS_CELL_NAME_LEN];
};

struct crtos_ring_header {
	u64 written;
	u32 capacity;
	u32 reserved;
};

struct crtos_report {
	u32 abi_version;
	u32 cpu_count;
	u32 state;
	u32 iommus;
	u32 iommus_taken;
	u32 iommus_confining;
	u32 dma_checked;
	u32 iommus_remapping;
	u64 free_pages;
	u64 iommu_refusals;
	u64 dma_refusals;
	u64 dma_missing;
	struct crtos_device_faults device_faults[CRTOS_MAX_FAULTING_DEVICES];
	struct crtos_device_report devices[CRTOS_MAX_DEVICES];
	struct crtos_cpu_report cpus[CRTOS_MAX_CPUS];
	struct crtos_cell_report cells[CRTOS_MAX_CELLS];
	struct crtos_ring_header log;
};

struct __aligned(4096) crtos_time_page {
	u32 sequence;
	u32 shift;
	u32 mult;
	u32 raw_mult;
	u64 tsc_base;
	u64 monotonic;
	u64 realtime;
	u64 boottime;
	u64 tai;
	u64 raw;
	u32 tick;
	u32 steps;
	u32 realtime_steps;
	u32 reserved[1003];
};

struct crtos_device_interrupts {
	u64 count;
	u8 name[24];
};

struct crtos_revocation {
	u32 state;
	u32 process;
	u64 start;
	u64 length;
	u64 reserved;
};

struct __aligned(64) crtos_slot {
	u32 state;
	u32 op;
	u32 nr;
	u32 rank;
	u64 args[6];
	s64 result;
	u64 fault_address;
	u64 answer;
	u32 fault_flags;
	u32 cpu;
	u32 process;
	u32 pid;
	u32 tid;
	u32 uid;
	u32 parent;
	u32 interrupt;
	u32 heritage_or_payer;
	u32 doubts;
	u64 info[6];
	u32 notices;
	u32 waits_on;
	u32 pid_namespace;
	u32 own_tid;
	u32 thread_state;
	u32 priority;
	u64 run_time;
	u64 switches;
	u64 local_calls;
	u64 remote_calls;
	u8 command[16];
	u64 pages;
};

struct crtos_section {
	u64 ticks;
	u64 begin;
	u64 end;
};

struct crtos_trace_event {
	u64 time;
	u32 kind;
	u32 thread;
	u64 first;
	u64 second;
};

struct crtos_question {
	u32 asked;
	u32 answered;
};

struct crtos_wanted_device {
	u32 function;
	u32 serial;
	u64 number;
	u32 group;
	u32 line;
	u8 description[CRTOS_DESCRIPTION_LEN];
};

struct crtos_had_device {
	u32 function;
	u32 user_count;
	u32 users[CRTOS_NAMED_USERS];
};

struct __aligned(64) crtos_ethernet_ring {
	u64 written;
	u64 wants_room;
	u64 reserved[6];
	u64 taken;
	u64 wants_frames;
	u64 cpu;
	u64 reserved1[5];
	u64 lengths[CRTOS_ETHERNET_PLACES];
	u8 bytes[CRTOS_ETHERNET_BYTES];
};

struct __aligned(64) crtos_ethernet {
	u64 linux_up;
	u64 mtu;
	u64 reserved[6];
	u64 realm_up;
	u64 reserved1[7];
	struct crtos_ethernet_ring to_realm;
	struct crtos_ethernet_ring to_linux;
};

struct __aligned(4096) crtos_channel {
	u64 magic;
	u32 abi_version;
	u32 reserved;
	struct crtos_time_page time;
	u64 replies[CRTOS_SLOT_WORDS];
	u64 requests[CRTOS_SLOT_WORDS];
	u64 posted[CRTOS_REVOCATION_WORDS];
	u32 kernel_state;
	u32 posted_count;
	u64 doorbells_sent;
	u64 doorbells_taken[CRTOS_MAX_CELL_CPUS];
	u64 pool_pages;
	u64 pool_free;
	u64 heap_size;
	u64 heap_used;
	u32 ranks[CRTOS_MAX_CELL_CPUS];
	u64 idle_time[CRTOS_MAX_CELL_CPUS];
	struct crtos_device_interrupts interrupts[CRTOS_DEVICE_VECTORS];
	struct crtos_revocation revocations[CRTOS_REVOCATIONS];
	struct crtos_slot slots[CRTOS_SLOTS];
	struct crtos_ring_header log;
	u8 log_bytes[CRTOS_KERNEL_LOG_SIZE];
	struct crtos_section sections[CRTOS_MAX_CELL_CPUS][CRTOS_SECTIONS];
	u32 trace_on;
	u32 trace_capacity;
	u64 trace_written[CRTOS_MAX_CELL_CPUS];
	struct crtos_trace_event trace_events[CRTOS_TRACE_EVENTS];
	struct crtos_question end;
	struct crtos_question seal;
	u32 linux_state;
	u32 last_words_count;
	u32 last_words_length;
	u32 reserved1;
	u8 last_words[CRTOS_LAST_WORDS_SIZE];
	struct crtos_question devices;
	struct crtos_wanted_device wanted_devices[CRTOS_MAX_DEVICES];
	struct crtos_had_device had_devices[CRTOS_MAX_DEVICES];
	struct crtos_ethernet ethernet;
	struct crtos_question recall;
	u64 given_up_count;
	u64 recalled[CRTOS_PLACE_WORDS];
	u64 given_up[CRTOS_PLACE_WORDS];
	u64 futex_looks;
	u64 successor_drops;
	u64 successors_dropped[CRTOS_SUCCESSOR_WORDS];
};

struct crtos_startup {
	u32 size;
	u32 argc;
	u32 envc;
	u32 executable;
	u32 uid;
	u32 euid;
	u32 gid;
	u32 egid;
	u64 stack_limit;
	u64 hwcap;
	u64 hwcap2;
	u8 random[16];
	u8 placement[16];
	u64 ignored;
	u64 choices;
};

struct crtos_boot_info {
	u64 magic;
	u32 abi_version;
	u32 cpu_count;
	u64 private_size;
	u64 shared_size;
	u64 image_end;
	u32 tsc_khz;
	u32 doorbell_vector;
	u32 has_channel;
	u32 links;
	u32 apic_ids[CRTOS_MAX_CELL_CPUS];
	u32 linux_cpus[CRTOS_MAX_CELL_CPUS];
	u8 command_line[512];
};

struct crtos_create_cell {
	u8 name[CRTOS_CELL_NAME_LEN];
	u64 cpus[4];
	u64 private_size;
	u64 shared_size;
	u32 flags;
	u32 doorbell_vector;
	u32 port_count;
	u32 msr_count;
	u32 linux_cpu;
	u32 link_vector;
	struct crtos_port_range ports[CRTOS_MAX_PORT_RANGES];
	struct crtos_msr_range msrs[CRTOS_MAX_MSR_RANGES];
	u32 apic_ids[CRTOS_MAX_CELL_CPUS];
};

struct crtos_cell_device {
	u32 cell;
	u32 flags;
	u8 name[CRTOS_DEVICE_NAME_LEN];
};

struct crtos_cell_interface {
	u32 cell;
	u32 flags;
	u8 function[CRTOS_FUNCTION_NAME_LEN];
	u8 name[CRTOS_INTERFACE_NAME_LEN];
	u32 index;
	u32 mtu;
	u32 queue_length;
	u32 speed;
	u8 address[6];
	u8 reserved[2];
};

struct crtos_cell_ethernet {
	u32 cell;
	u32 index;
	u8 name[CRTOS_INTERFACE_NAME_LEN];
	u8 address[6];
	u8 reserved[2];
};

struct crtos_link_header {
	u64 magic;
	u32 abi_version;
	u32 peers;
	u64 common;
	u64 output;
	u64 device;
	u8 name[32];
	u32 cells[8];
};

struct crtos_link_peer {
	u32 state;
	u32 cpu;
	u32 rung[8];
};

struct crtos_link {
	u8 name[32];
	u32 number;
	u32 peers;
	u64 common;
	u64 output;
	u32 cells[8];
	u32 states[8];
};

struct crtos_link_join {
	u8 name[32];
	u32 cell;
	u32 peer;
	u32 number;
	u32 reserved;
};

struct crtos_device_memory {
	u64 physical;
	u64 size;
	u64 cell_address;
};

struct crtos_device_config {
	u16 function;
	u16 bridge_count;
	u32 flags;
	u16 bridges[CRTOS_MAX_BRIDGES];
	struct crtos_device_memory memory[CRTOS_BASE_ADDRESSES];
	struct crtos_port_range ports[CRTOS_BASE_ADDRESSES];
};

struct crtos_load_cell {
	u32 cell;
	u32 reserved;
	u64 cell_address;
	u64 source;
	u64 length;
};

struct crtos_start_cell {
	u32 cell;
	u32 reserved;
	u64 entry;
	u64 page_table;
	u64 argument;
};

struct crtos_info {
	u32 abi_version;
	u32 enabled;
	u32 cells;
	u32 realm;
	u32 tsc_khz;
	u32 x2apic;
	u32 processes;
	u32 reserved;
	u64 cell_cpus[4];
};

struct crtos_transfer {
	u32 cell;
	u32 reserved;
	u64 offset;
	u64 buffer;
	u64 length;
};

struct crtos_reason {
	u8 text[256];
};

struct crtos_spawn {
	u32 process;
	u32 slot;
	u32 parent;
	s32 parent_file;
	u64 reserved[2];
};

struct crtos_remote {
	u32 slot;
	u32 has_result;
	s64 result;
	u32 op;
	u32 nr;
	u64 args[6];
};

struct crtos_copy_range {
	u64 to;
	u64 from;
	u64 length;
};

#endif  /* CRTOS_ABI_H */
