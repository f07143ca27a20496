// SPDX-License-Identifier: MIT OR Apache-2.0
// run: by a script
/*
 * A serial line, /dev/ttyS1, whose other end is /dev/ttyS2: settings, lines and bytes, waiting,
 * flow control, modem lines. In the realm the first is a UART of the realm and the second is
 * Linux's.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/serial.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <termios.h>

#include "check.h"
#include "children.h"
#include "driven.h"
#include "moments.h"
#include "waiting.h"

#define LINE "/dev/ttyS1"
#define OTHER "/dev/ttyS2"

/* <asm/termbits.h> and <termios.h> exclude each other. */
struct termios2 {
	tcflag_t input, output, control, local;
	cc_t discipline, characters[19];
	speed_t input_speed, output_speed;
};

#define BAUD_OTHER 0010000
#define GET_TERMIOS2 _IOR('T', 0x2a, struct termios2)
#define SET_TERMIOS2 _IOW('T', 0x2b, struct termios2)
#define GET_EXCLUSIVE _IOR('T', 0x40, int)

/* Modem lines that only <asm/termios.h> has. */
#define TIOCM_OUT2 0x4000
#define TIOCM_LOOP 0x8000

/* Milliseconds within which a byte arrives, however busy the host is. */
#define PATIENCE 20000

static int line, other;

/* Raw settings, 115,200 baud. */
static void make_raw(int fd)
{
	struct termios termios;

	CHECK(tcgetattr(fd, &termios) == 0);
	cfmakeraw(&termios);
	termios.c_cflag = B115200 | CS8 | CREAD | CLOCAL | HUPCL;
	termios.c_cc[VMIN] = 1;
	termios.c_cc[VTIME] = 0;
	CHECK(tcsetattr(fd, TCSANOW, &termios) == 0);
}

/* Changes flags of the line: takes some away, and sets others. */
static void change(tcflag_t input, tcflag_t output, tcflag_t local)
{
	struct termios termios;

	CHECK(tcgetattr(line, &termios) == 0);
	termios.c_iflag = input;
	termios.c_oflag = output;
	termios.c_lflag = local;
	CHECK(tcsetattr(line, TCSANOW, &termios) == 0);
}

static void set_patience(int least, int tenths)
{
	struct termios termios;

	CHECK(tcgetattr(line, &termios) == 0);
	termios.c_cc[VMIN] = least;
	termios.c_cc[VTIME] = tenths;
	CHECK(tcsetattr(line, TCSANOW, &termios) == 0);
}

/* Sends from an end. */
static void send_text(int fd, const char *text)
{
	size_t length = strlen(text);

	CHECK(write(fd, text, length) == (ssize_t)length && tcdrain(fd) == 0);
}

/* Reads as many bytes as a text has, which have to be these. */
static void expect(int fd, const char *text)
{
	size_t length = strlen(text), done = 0;
	char got[8192];

	while (done < length) {
		ssize_t count;

		if (!ready(fd, POLLIN, PATIENCE))
			fail(__FILE__, __LINE__, "%zu bytes of %zu came", done, length);
		count = read(fd, got + done, length - done);
		CHECK(count > 0);
		done += count;
	}
	if (memcmp(got, text, length) != 0)
		fail(__FILE__, __LINE__, "'%.*s' instead of '%s'", (int)length, got, text);
}

/* Nothing comes at an end. */
static void expect_nothing(int fd)
{
	CHECK(ready(fd, POLLIN, 100) == 0);
}

/* Waits until so many bytes can be read. */
static void await_bytes(int fd, int wanted)
{
	int there = 0;

	for (int i = 0; i < PATIENCE; i++) {
		CHECK(ioctl(fd, FIONREAD, &there) == 0);
		if (there == wanted)
			break;
		pause_for(1);
	}
	CHECK(there == wanted);
}

BEFORE_EACH
{
	syscall(SYS_close_range, 3, ~0U, 0);
	line = open(LINE, O_RDWR | O_NOCTTY);
	other = open(OTHER, O_RDWR | O_NOCTTY);
	CHECK(line == 3 && other == 4);
	make_raw(line);
	make_raw(other);
	/* What is on the way from the case before. */
	do
		CHECK(tcflush(line, TCIOFLUSH) == 0 && tcflush(other, TCIOFLUSH) == 0);
	while (ready(line, POLLIN, 20) || ready(other, POLLIN, 20));
}

CASE(it_is_a_terminal_of_that_name)
{
	struct stat status;

	CHECK(isatty(line) && strcmp(ttyname(line), LINE) == 0);
	CHECK(fstat(line, &status) == 0 && S_ISCHR(status.st_mode) && status.st_rdev == 0x441);
	/* O_LARGEFILE, which is 0 to programs. */
	CHECK(fcntl(line, F_GETFL) == (O_RDWR | 0100000));
	CHECK(stat(LINE, &status) == 0 && status.st_rdev == 0x441);
}

CASE(what_it_does_not_offer_fails)
{
	char byte;
	int number = 0;

	FAILS(ESPIPE, lseek(line, 0, SEEK_SET));
	FAILS(ESPIPE, pread(line, &byte, 1, 0));
	FAILS(ENODEV, (long)mmap(NULL, 4096, PROT_READ, MAP_SHARED, line, 0));
	FAILS(ENOTTY, ioctl(line, 0x1234, &number));
	FAILS(ENOTTY, ioctl(line, TIOCGPGRP, &number));
	CHECK(ioctl(line, TIOCGDEV, &number) == 0 && number == 0x441);
	FAILS(EINVAL, ioctl(line, TIOCSETD, &number));
	FAILS(EINVAL, ioctl(line, TCFLSH, 3));
	FAILS(EINVAL, ioctl(line, TCXONC, 4));
	FAILS(EFAULT, ioctl(line, TIOCMGET, NULL));
	FAILS(ENOTDIR, fchdir(line));
	FAILS(EBADF, write(open(LINE, O_RDONLY | O_NOCTTY), &byte, 1));
	FAILS(EBADF, read(open(LINE, O_WRONLY | O_NOCTTY), &byte, 1));
	FAILS(EFAULT, write(line, at(1), 1));
}

CASE(settings_stay_over_a_close)
{
	struct termios before, after;

	CHECK(tcgetattr(line, &before) == 0);
	before.c_cc[VEOL] = 'x';
	before.c_iflag |= ISTRIP;
	cfsetspeed(&before, B19200);
	CHECK(tcsetattr(line, TCSANOW, &before) == 0 && close(line) == 0);
	line = open(LINE, O_RDWR | O_NOCTTY);
	CHECK(tcgetattr(line, &after) == 0);
	CHECK(after.c_iflag == before.c_iflag && after.c_cflag == before.c_cflag);
	CHECK(after.c_cc[VEOL] == 'x' && cfgetospeed(&after) == B19200);
}

CASE(any_speed_that_the_uart_has_can_be_set)
{
	static const int speeds[] = { 7200, 9600, 31250, 115200, 230400, 1 };
	struct termios2 termios;

	for (unsigned i = 0; i < sizeof(speeds) / sizeof(*speeds); i++) {
		CHECK(ioctl(line, GET_TERMIOS2, &termios) == 0);
		termios.control = (termios.control & ~CBAUD) | BAUD_OTHER;
		termios.output_speed = termios.input_speed = speeds[i];
		CHECK(ioctl(line, SET_TERMIOS2, &termios) == 0);
		CHECK(ioctl(line, GET_TERMIOS2, &termios) == 0);
		SAY("%d: %u %u %o", speeds[i], termios.input_speed, termios.output_speed,
		    termios.control);
	}
}

CASE(a_code_of_a_speed_that_it_does_not_have_changes_nothing)
{
	struct termios termios;

	CHECK(tcgetattr(line, &termios) == 0);
	cfsetspeed(&termios, B4000000);
	CHECK(tcsetattr(line, TCSANOW, &termios) == 0 && tcgetattr(line, &termios) == 0);
	SAY("%o %u", termios.c_cflag, cfgetospeed(&termios));
}

CASE(bytes_go_through_as_they_are)
{
	char all[257] = "", back[256];

	for (int byte = 0; byte < 256; byte++)
		all[byte] = byte;
	CHECK(write(line, all, 256) == 256);
	for (int done = 0; done < 256;) {
		CHECK(ready(other, POLLIN, PATIENCE) == POLLIN);
		done += read(other, back + done, 256 - done);
	}
	CHECK(memcmp(all, back, 256) == 0);
	CHECK(write(other, all, 256) == 256);
	for (int done = 0; done < 256;) {
		CHECK(ready(line, POLLIN, PATIENCE) == POLLIN);
		done += read(line, back + done, 256 - done);
	}
	CHECK(memcmp(all, back, 256) == 0);
}

CASE(many_bytes_go_through_in_both_directions)
{
	enum { COUNT = 20000 };
	static unsigned char there[COUNT], back[COUNT];
	pid_t child;

	for (int i = 0; i < COUNT; i++)
		there[i] = i * 7 + i / 256;
	child = fork();
	if (child == 0) {
		for (int done = 0; done < COUNT;) {
			int count = read(other, back, sizeof(back));

			CHECK(count > 0 && write(other, back, count) == count);
			done += count;
		}
		_exit(0);
	}
	for (int sent = 0, done = 0; done < COUNT;) {
		int ahead = sent - done < 500 && sent < COUNT;

		CHECK(ready(line, ahead ? POLLOUT : POLLIN, PATIENCE));
		if (ahead)
			sent += write(line, there + sent, COUNT - sent < 100 ? COUNT - sent : 100);
		if (ready(line, POLLIN, 0))
			done += read(line, back + done, COUNT - done);
	}
	CHECK(memcmp(there, back, COUNT) == 0 && exits_with(child, 0));
}

CASE(a_vector_is_written_and_read_in_order)
{
	char first[3], second[3];
	struct iovec parts[] = { { "abc", 3 }, { "def", 3 } };
	struct iovec to[] = { { first, 3 }, { second, 3 } };

	CHECK(writev(line, parts, 2) == 6);
	expect(other, "abcdef");
	send_text(other, "uvwxyz");
	await_bytes(line, 6);
	CHECK(readv(line, to, 2) == 6 && !memcmp(first, "uvw", 3) && !memcmp(second, "xyz", 3));
}

CASE(a_line_is_read_when_it_has_ended)
{
	char text[100];

	change(ICRNL, 0, ICANON);
	send_text(other, "first\rsec");
	CHECK(ready(line, POLLIN, PATIENCE) == POLLIN);
	CHECK(read(line, text, 100) == 6 && !memcmp(text, "first\n", 6));
	expect_nothing(line);
	send_text(other, "ond\n");
	CHECK(ready(line, POLLIN, PATIENCE) == POLLIN);
	CHECK(read(line, text, 3) == 3 && !memcmp(text, "sec", 3));
	CHECK(read(line, text, 100) == 4 && !memcmp(text, "ond\n", 4));
}

CASE(a_line_is_edited_and_echoed)
{
	change(ICRNL, OPOST | ONLCR, ICANON | ECHO | ECHOE | ECHOK | ECHOKE | ECHOCTL | IEXTEN);
	send_text(other, "ab\tc\x7f\x7f\x7fx\x01y\x7f\x7f z zz\x17t\x16\x7f\r");
	expect(other, "ab\tc\b \b\b\b\b\b\b\b\b \bx^Ay\b \b\b \b\b \b z zz\b \b\b \bt^\b^?\r\n");
	expect(line, "ax z t\x7f\n");
	send_text(other, "gone\x15stays\n");
	expect(other, "gone\b \b\b \b\b \b\b \bstays\r\n");
	expect(line, "stays\n");
	expect_nothing(line);
	expect_nothing(other);
}

CASE(the_elder_ways_to_show_what_is_erased)
{
	change(0, OPOST | ONLCR, ICANON | ECHO | ECHOK);
	send_text(other, "ab\x7f\x15" "c\n");
	expect(other, "ab\x7f\x15\r\nc\r\n");
	expect(line, "c\n");
	change(0, OPOST | ONLCR, ICANON | ECHO | ECHOE | ECHOPRT | ECHOCTL);
	send_text(other, "abc\x7f\x7fz\n");
	expect(other, "abc\\cb/z\r\n");
	expect(line, "az\n");
}

CASE(an_end_of_file_ends_a_line_or_a_read)
{
	char text[100];

	change(0, 0, ICANON);
	send_text(other, "abc\x04");
	CHECK(ready(line, POLLIN, PATIENCE) == POLLIN && read(line, text, 100) == 3);
	send_text(other, "\x04");
	CHECK(ready(line, POLLIN, PATIENCE) == POLLIN && read(line, text, 100) == 0);
	send_text(other, "def\x04g\n");
	await_bytes(line, 5);
	CHECK(read(line, text, 3) == 3 && read(line, text, 100) == 2);
}

CASE(input_is_changed_as_the_flags_say)
{
	static const struct {
		tcflag_t flags;
		const char *sent, *got;
	} parts[] = {
		{ ICRNL, "a\r\nb", "a\n\nb" },	{ INLCR, "a\r\nb", "a\r\rb" },
		{ IGNCR, "a\r\nb", "a\nb" },	{ ISTRIP, "\xe1\xe2", "ab" },
		{ PARMRK, "a\xff", "a\xff\xff" },
	};

	for (unsigned i = 0; i < sizeof(parts) / sizeof(*parts); i++) {
		PART("%x", parts[i].flags);
		change(parts[i].flags, 0, 0);
		send_text(other, parts[i].sent);
		expect(line, parts[i].got);
		expect_nothing(line);
	}
}

CASE(output_is_changed_as_the_flags_say)
{
	static const struct {
		tcflag_t flags;
		const char *sent, *got;
	} parts[] = {
		{ 0, "a\n\tb", "a\n\tb" },
		{ OPOST | ONLCR, "a\nb", "a\r\nb" },
		{ OPOST | OCRNL, "a\rb", "a\nb" },
		{ OPOST | ONLCR | ONOCR, "\n\ra\rb\n", "\r\na\rb\r\n" },
		{ OPOST | ONLCR | XTABS, "\nabc\td\n", "\r\nabc     d\r\n" },
		{ OPOST | OLCUC, "aBc", "ABC" },
	};

	for (unsigned i = 0; i < sizeof(parts) / sizeof(*parts); i++) {
		PART("%x", parts[i].flags);
		change(0, parts[i].flags, 0);
		send_text(line, parts[i].sent);
		expect(other, parts[i].got);
		expect_nothing(other);
	}
}

CASE(characters_of_signals_flush)
{
	change(0, 0, ISIG);
	/* More than what is lost, or it would be read before it is. */
	send_text(other, "lost\x03was kept");
	await_bytes(line, 8);
	expect(line, "was kept");
	change(0, 0, ISIG | NOFLSH);
	send_text(other, "a\x03z");
	expect(line, "az");
}

CASE(lines_become_bytes_and_the_other_way_round)
{
	char text[10];

	change(0, 0, ICANON);
	send_text(other, "part");
	expect_nothing(line);
	change(0, 0, 0);
	await_bytes(line, 4);
	change(0, 0, ICANON);
	CHECK(read(line, text, 10) == 4 && !memcmp(text, "part", 4));
}

CASE(a_read_without_least_waits_for_its_time)
{
	char text[10];
	long begin = milliseconds();

	set_patience(0, 0);
	CHECK(read(line, text, 10) == 0);
	set_patience(0, 3);
	CHECK(read(line, text, 10) == 0 && milliseconds() - begin >= 300);
	send_text(other, "ab");
	await_bytes(line, 2);
	CHECK(read(line, text, 10) == 2);
}

CASE(a_read_waits_for_the_least_that_it_wants)
{
	char text[10];
	pid_t child;

	set_patience(4, 0);
	send_text(other, "ab");
	await_bytes(line, 2);
	CHECK(ready(line, POLLIN, 50) == 0);
	child = fork();
	if (child == 0) {
		pause_for(100);
		send_text(other, "cd");
		_exit(0);
	}
	CHECK(read(line, text, 10) == 4 && !memcmp(text, "abcd", 4) && exits_with(child, 0));
}

CASE(a_read_gets_what_it_waits_for_whoever_else_reads)
{
	pid_t children[2];
	int own = open(LINE, O_RDWR | O_NOCTTY | O_NONBLOCK);
	char none;

	set_patience(4, 0);
	for (int i = 0; i < 2; i++) {
		children[i] = fork();
		if (children[i] == 0) {
			char text[4];

			alarm(20);
			_exit(read(line, text, 4) == 4 && text[3] - text[0] == 3 ? 0 : 1);
		}
		pause_for(50);
	}
	/* One reads at a time, so the other one must not wait for that one either. */
	send_text(other, "ab");
	await_bytes(line, 0);
	FAILS(EAGAIN, read(own, &none, 1));
	for (const char *byte = "cdefgh"; *byte; byte++) {
		CHECK(write(other, byte, 1) == 1);
		pause_for(5);
	}
	CHECK(exits_with(children[0], 0) && exits_with(children[1], 0));
}

CASE(what_one_write_writes_is_in_one_piece)
{
	static char got[8000];
	pid_t children[2];

	for (int i = 0; i < 2; i++) {
		children[i] = fork();
		if (children[i] == 0) {
			char text[4000];

			memset(text, 'a' + i, sizeof(text));
			_exit(write(line, text, sizeof(text)) == sizeof(text) ? 0 : 1);
		}
	}
	for (size_t done = 0; done < sizeof(got);) {
		ssize_t count;

		CHECK(ready(other, POLLIN, PATIENCE));
		count = read(other, got + done, sizeof(got) - done);
		CHECK(count > 0);
		done += count;
	}
	for (size_t i = 1; i < 4000; i++)
		CHECK(got[i] == got[0] && got[4000 + i] == got[4000]);
	CHECK(got[0] != got[4000] && exits_with(children[0], 0) && exits_with(children[1], 0));
}

CASE(a_break_comes_behind_what_was_written)
{
	pid_t child;

	CHECK(ioctl(line, TCXONC, TCOOFF) == 0 && write(line, "first", 5) == 5);
	child = fork();
	if (child == 0)
		_exit(ioctl(line, TIOCSBRK) == 0 && ioctl(line, TIOCCBRK) == 0 ? 0 : 1);
	pause_for(100);
	CHECK(waitpid(child, NULL, WNOHANG) == 0);
	CHECK(ioctl(line, TCXONC, TCOON) == 0 && exits_with(child, 0));
	expect(other, "first");
}

CASE(a_pause_between_bytes_ends_a_read)
{
	char text[10];
	long begin;

	set_patience(5, 2);
	send_text(other, "abc");
	await_bytes(line, 3);
	begin = milliseconds();
	CHECK(read(line, text, 10) == 3 && milliseconds() - begin >= 200);
}

/* Two lines may come at once. */
CASE(a_read_that_fails_leaves_the_next_line_to_others)
{
	change(ICRNL, 0, ICANON);
	for (int i = 0; i < 10; i++) {
		pid_t fails, reads;
		char text[10];

		fails = fork();
		if (fails == 0)
			_exit(read(line, at(16), 10) == -1 && errno == EFAULT ? 0 : 1);
		pause_for(30);
		reads = fork();
		if (reads == 0) {
			alarm(20);
			_exit(read(line, text, 10) == 2 && !memcmp(text, "b\n", 2) ? 0 : 1);
		}
		pause_for(30);
		send_text(other, "a\nb\n");
		CHECK(exits_with(fails, 0) && exits_with(reads, 0));
	}
}

CASE(a_read_that_must_not_wait_does_not)
{
	char byte;
	int on = 1;

	CHECK(fcntl(line, F_SETFL, O_RDWR | O_NONBLOCK) == 0);
	FAILS(EAGAIN, read(line, &byte, 1));
	set_patience(0, 10);
	FAILS(EAGAIN, read(line, &byte, 1));
	set_patience(0, 0);
	CHECK(read(line, &byte, 1) == 0);
	set_patience(1, 0);
	CHECK(fcntl(line, F_SETFL, O_RDWR) == 0 && ioctl(line, FIONBIO, &on) == 0);
	FAILS(EAGAIN, read(line, &byte, 1));
}

CASE(a_signal_ends_a_wait)
{
	struct sigaction action = { .sa_handler = note };
	char byte;

	sigaction(SIGALRM, &action, NULL);
	/* Again and again: the first one may come before the wait. */
	ualarm(100000, 100000);
	FAILS(EINTR, read(line, &byte, 1));
	FAILS(EINTR, ioctl(line, TIOCMIWAIT, TIOCM_RNG));
	ualarm(0, 0);
	CHECK(ioctl(line, TCXONC, TCOOFF) == 0 && write(line, "x", 1) == 1);
	ualarm(100000, 100000);
	FAILS(EINTR, tcdrain(line));
	ualarm(0, 0);
	CHECK(tcflush(line, TCOFLUSH) == 0 && ioctl(line, TCXONC, TCOON) == 0);
}

CASE(a_signal_tells_of_bytes)
{
	CHECK(drive(line) && write(other, "a", 1) == 1 && is_driven(line, POLL_IN));
	CHECK(write(other, "b", 1) == 1 && is_driven(line, POLL_IN));
	CHECK(fcntl(line, F_SETFL, 0) == 0 && fcntl(line, F_SETOWN, 0) == 0);
	/* Whoever asks owns what nobody owned. */
	signal(SIGIO, SIG_IGN);
	CHECK(fcntl(line, F_SETFL, O_ASYNC) == 0 && fcntl(line, F_GETOWN) == getpid());
}

CASE(a_full_line_takes_no_more)
{
	static char zeros[16384];
	int unsent = 0, count;

	CHECK(fcntl(line, F_SETFL, O_RDWR | O_NONBLOCK) == 0 && ioctl(line, TCXONC, TCOOFF) == 0);
	CHECK(ready(line, POLLOUT, 0) == POLLOUT);
	count = write(line, zeros, sizeof(zeros));
	CHECK(count >= 4095 && count <= 4096);
	FAILS(EAGAIN, write(line, zeros, 1));
	CHECK(ready(line, POLLOUT, 0) == 0);
	CHECK(ioctl(line, TIOCOUTQ, &unsent) == 0 && unsent == count);
	CHECK(tcflush(line, TCOFLUSH) == 0 && ioctl(line, TIOCOUTQ, &unsent) == 0 && unsent == 0);
	CHECK(ready(line, POLLOUT, 0) == POLLOUT && ioctl(line, TCXONC, TCOON) == 0);
	send_text(line, "on");
	expect(other, "on");
}

CASE(a_write_waits_for_room)
{
	static char zeros[6000], got[6000];
	pid_t child = fork();

	if (child == 0) {
		CHECK(write(line, zeros, sizeof(zeros)) == sizeof(zeros));
		_exit(0);
	}
	for (size_t done = 0; done < sizeof(got);) {
		CHECK(ready(other, POLLIN, PATIENCE) == POLLIN);
		done += read(other, got, sizeof(got) - done);
	}
	CHECK(exits_with(child, 0));
}

CASE(poll_select_and_epoll_tell_of_bytes)
{
	struct timeval patience = { PATIENCE / 1000, 0 };
	struct epoll_event event = { .events = EPOLLIN | EPOLLET, .data.u32 = 7 };
	int set = epoll_create1(0);
	pid_t child;
	fd_set reads;

	CHECK(epoll_ctl(set, EPOLL_CTL_ADD, line, &event) == 0);
	CHECK(epoll_wait(set, &event, 1, 0) == 0);
	CHECK(ready(line, POLLIN | POLLOUT, 0) == POLLOUT);
	child = fork();
	if (child == 0) {
		pause_for(100);
		send_text(other, "a");
		_exit(0);
	}
	FD_ZERO(&reads);
	FD_SET(line, &reads);
	CHECK(select(line + 1, &reads, NULL, NULL, &patience) == 1 && exits_with(child, 0));
	CHECK(epoll_wait(set, &event, 1, PATIENCE) == 1 && event.events == EPOLLIN &&
	      event.data.u32 == 7);
	CHECK(ready(line, POLLIN, 0) == POLLIN && epoll_wait(set, &event, 1, 0) == 0);
	expect(line, "a");
}

CASE(copies_and_children_share_it)
{
	int copy = dup(line);
	pid_t child = fork();

	if (child == 0) {
		send_text(copy, "child");
		_exit(0);
	}
	CHECK(exits_with(child, 0));
	expect(other, "child");
	CHECK(close(line) == 0);
	send_text(copy, "copy");
	expect(other, "copy");
}

CASE(received_bytes_can_be_flushed)
{
	send_text(other, "old");
	await_bytes(line, 3);
	CHECK(tcflush(line, TCIFLUSH) == 0);
	await_bytes(line, 0);
	send_text(other, "older");
	await_bytes(line, 5);
	struct termios termios;
	CHECK(tcgetattr(line, &termios) == 0 && tcsetattr(line, TCSAFLUSH, &termios) == 0);
	await_bytes(line, 0);
}

CASE(the_other_end_stops_it_and_has_it_go_on)
{
	change(IXON, 0, 0);
	send_text(other, "\x13!");
	expect(line, "!");
	CHECK(write(line, "later", 5) == 5);
	expect_nothing(other);
	send_text(other, "\x11");
	expect(other, "later");
	send_text(other, "\x13!");
	expect(line, "!");
	CHECK(write(line, "any", 3) == 3);
	change(IXON | IXANY, 0, 0);
	send_text(other, "x");
	expect(other, "any");
	expect(line, "x");
}

CASE(a_program_stops_and_starts_both_directions)
{
	CHECK(tcflow(line, TCIOFF) == 0);
	expect(other, "\x13");
	CHECK(tcflow(line, TCION) == 0);
	expect(other, "\x11");
	CHECK(tcflow(line, TCOOFF) == 0 && write(line, "held", 4) == 4);
	expect_nothing(other);
	CHECK(tcflow(line, TCOON) == 0);
	expect(other, "held");
}

CASE(the_other_end_is_stopped_when_room_runs_low)
{
	static char zeros[100];
	static char got[20000];
	int sent = 0, done = 0;

	change(IXOFF, 0, 0);
	/* What is sent has come before more is sent: there is little room behind the threshold. */
	while (!ready(other, POLLIN, sent < 3900 ? 0 : 100)) {
		CHECK(sent < (int)sizeof(got));
		CHECK(write(other, zeros, sizeof(zeros)) == sizeof(zeros));
		sent += sizeof(zeros);
		for (int there = 0; there < sent && !ready(other, POLLIN, 0);)
			CHECK(ioctl(line, FIONREAD, &there) == 0);
	}
	expect(other, "\x13");
	CHECK(sent >= 3900);
	while (done < sent) {
		CHECK(ready(line, POLLIN, PATIENCE) == POLLIN);
		done += read(line, got, sent - done);
	}
	expect(other, "\x11");
}

CASE(modem_lines_are_told_and_driven)
{
	int lines = 0, rts = TIOCM_RTS, all = TIOCM_DTR | TIOCM_RTS | TIOCM_OUT2;

	CHECK(ioctl(line, TIOCMGET, &lines) == 0);
	SAY("opened: %x", lines);
	CHECK(ioctl(line, TIOCMBIC, &rts) == 0 && ioctl(line, TIOCMGET, &lines) == 0);
	SAY("without RTS: %x", lines);
	CHECK(ioctl(line, TIOCMBIS, &rts) == 0 && ioctl(line, TIOCMGET, &lines) == 0);
	SAY("with RTS: %x", lines);
	lines = TIOCM_OUT2;
	CHECK(ioctl(line, TIOCMSET, &lines) == 0 && ioctl(line, TIOCMGET, &lines) == 0);
	SAY("set: %x", lines);
	CHECK(ioctl(line, TIOCMSET, &all) == 0 && ioctl(line, TIOCMGET, &lines) == 0);
	SAY("set again: %x", lines);
}

CASE(in_a_loop_it_hears_and_sees_itself)
{
	int all = TIOCM_LOOP | TIOCM_OUT2 | TIOCM_RTS, lines = 0;

	CHECK(ioctl(line, TIOCMSET, &all) == 0 && ioctl(line, TIOCMGET, &lines) == 0);
	SAY("RTS: %x", lines);
	all = TIOCM_LOOP | TIOCM_OUT2 | TIOCM_DTR;
	CHECK(ioctl(line, TIOCMSET, &all) == 0 && ioctl(line, TIOCMGET, &lines) == 0);
	SAY("DTR: %x", lines);
	send_text(line, "self");
	expect(line, "self");
	expect_nothing(other);
	all = TIOCM_DTR | TIOCM_RTS | TIOCM_OUT2;
	CHECK(ioctl(line, TIOCMSET, &all) == 0);
}

CASE(a_speed_of_zero_hangs_up)
{
	struct termios termios;
	int lines = 0;

	CHECK(tcgetattr(line, &termios) == 0);
	cfsetspeed(&termios, B0);
	CHECK(tcsetattr(line, TCSANOW, &termios) == 0 && ioctl(line, TIOCMGET, &lines) == 0);
	SAY("hung up: %x", lines);
	cfsetspeed(&termios, B9600);
	CHECK(tcsetattr(line, TCSANOW, &termios) == 0 && ioctl(line, TIOCMGET, &lines) == 0);
	SAY("answered: %x", lines);
}

CASE(bytes_are_counted)
{
	struct serial_icounter_struct before, after;

	CHECK(ioctl(line, TIOCGICOUNT, &before) == 0);
	send_text(line, "12345");
	expect(other, "12345");
	send_text(other, "123");
	expect(line, "123");
	CHECK(ioctl(line, TIOCGICOUNT, &after) == 0);
	SAY("%d sent, %d received", after.tx - before.tx, after.rx - before.rx);
	CHECK(after.frame == before.frame && after.parity == before.parity);
}

CASE(breaks_and_drains_take_their_time)
{
	long begin = milliseconds();

	CHECK(ioctl(line, TIOCSBRK) == 0 && ioctl(line, TIOCCBRK) == 0);
	CHECK(tcsendbreak(line, 0) == 0 && milliseconds() - begin >= 250);
	begin = milliseconds();
	CHECK(ioctl(line, TCSBRKP, 1) == 0 && milliseconds() - begin >= 100);
	send_text(line, "drained");
	expect(other, "drained");
}

CASE(an_exclusive_line_is_for_root_alone)
{
	int exclusive = 0;
	pid_t child;

	CHECK(chmod(LINE, 0666) == 0);
	for (int round = 0; round < 3; round++) {
		child = fork();
		if (child == 0) {
			CHECK(setresuid(1000, 1000, 1000) == 0);
			if (round == 1)
				FAILS(EBUSY, open(LINE, O_RDWR | O_NOCTTY));
			else
				CHECK(open(LINE, O_RDWR | O_NOCTTY) >= 0);
			_exit(0);
		}
		CHECK(exits_with(child, 0) && open(LINE, O_RDWR | O_NOCTTY) >= 0);
		CHECK(ioctl(line, round == 0 ? TIOCEXCL : TIOCNXCL) == 0);
		CHECK(ioctl(line, GET_EXCLUSIVE, &exclusive) == 0 && exclusive == (round == 0));
	}
	CHECK(chmod(LINE, 0600) == 0);
	child = fork();
	if (child == 0) {
		CHECK(setresuid(1000, 1000, 1000) == 0);
		FAILS(EACCES, open(LINE, O_RDWR | O_NOCTTY));
		_exit(0);
	}
	CHECK(exits_with(child, 0));
}

CASE(a_lock_is_one_description_s)
{
	int second = open(LINE, O_RDWR | O_NOCTTY), copy = dup(line);

	CHECK(flock(line, LOCK_EX | LOCK_NB) == 0 && flock(copy, LOCK_EX | LOCK_NB) == 0);
	FAILS(EWOULDBLOCK, flock(second, LOCK_EX | LOCK_NB));
	FAILS(EWOULDBLOCK, flock(second, LOCK_SH | LOCK_NB));
	CHECK(flock(line, LOCK_SH | LOCK_NB) == 0 && flock(second, LOCK_SH | LOCK_NB) == 0);
	FAILS(EWOULDBLOCK, flock(second, LOCK_EX | LOCK_NB));
	CHECK(close(line) == 0 && close(copy) == 0 && flock(second, LOCK_EX | LOCK_NB) == 0);
	FAILS(EINVAL, flock(second, 0));
}

/* What fcntl does with a part of the line: kind, first byte, length. */
static int lock_part(int fd, int command, short kind, off_t first, off_t length)
{
	struct flock part = { .l_type = kind, .l_start = first, .l_len = length };

	return fcntl(fd, command, &part);
}

/* Who has locked the part of another process's, by F_GETLK; 0 if nobody has. */
static pid_t holder(int fd, short kind, off_t first, off_t length)
{
	struct flock part = { .l_type = kind, .l_start = first, .l_len = length };

	CHECK(fcntl(fd, F_GETLK, &part) == 0);
	if (part.l_type == F_UNLCK)
		return 0;
	SAY("kind %d from %ld, %ld bytes", part.l_type, (long)part.l_start, (long)part.l_len);
	return part.l_pid;
}

CASE(parts_are_locked_by_processes)
{
	int second = open(LINE, O_RDWR | O_NOCTTY), reader, ready[2], go[2];
	char byte = 'x';
	pid_t child;

	reader = open(LINE, O_RDONLY | O_NOCTTY);
	CHECK(second >= 0 && reader >= 0 && pipe(ready) == 0 && pipe(go) == 0);
	CHECK(lockf(line, F_TLOCK, 0) == 0 && lockf(second, F_TLOCK, 0) == 0);
	/* A hole in the middle. */
	CHECK(lock_part(line, F_SETLK, F_UNLCK, 10, 5) == 0);
	CHECK(lock_part(line, F_SETLK, F_RDLCK, 20, 2) == 0);
	child = fork();
	if (child == 0) {
		FAILS(EAGAIN, lockf(line, F_TLOCK, 0));
		FAILS(EAGAIN, lock_part(second, F_SETLK, F_WRLCK, 9, 2));
		FAILS(EAGAIN, lock_part(second, F_SETLK, F_WRLCK, 14, 2));
		FAILS(EAGAIN, lock_part(second, F_SETLK, F_WRLCK, 21, 1));
		CHECK(lock_part(second, F_SETLK, F_RDLCK, 20, 2) == 0);
		CHECK(lock_part(second, F_SETLK, F_WRLCK, 10, 5) == 0);
		CHECK(holder(second, F_WRLCK, 0, 0) == getppid());
		CHECK(holder(second, F_RDLCK, 18, 4) == getppid());
		CHECK(holder(second, F_WRLCK, 11, 1) == 0);
		CHECK(lock_part(second, F_SETLK, F_UNLCK, 0, 0) == 0);
		CHECK(write(ready[1], &byte, 1) == 1);
		/* Until the parent closes any descriptor of the line. */
		CHECK(lock_part(second, F_SETLKW, F_WRLCK, 0, 0) == 0);
		CHECK(write(ready[1], &byte, 1) == 1 && read(go[0], &byte, 1) == 1);
		_exit(0);
	}
	CHECK(read(ready[0], &byte, 1) == 1);
	usleep(100000);
	CHECK(close(reader) == 0);
	CHECK(read(ready[0], &byte, 1) == 1);
	CHECK(holder(line, F_RDLCK, 5, 1) == child);
	FAILS(EAGAIN, lock_part(line, F_SETLK, F_WRLCK, 0, 1));
	CHECK(write(go[1], &byte, 1) == 1 && exits_with(child, 0));
	CHECK(lock_part(line, F_SETLK, F_WRLCK, 0, 1) == 0);

	/* Those of descriptions. */
	FAILS(EAGAIN, lock_part(second, F_OFD_SETLK, F_WRLCK, 0, 1));
	CHECK(lock_part(second, F_OFD_SETLK, F_WRLCK, 1, 1) == 0);
	FAILS(EAGAIN, lock_part(line, F_SETLK, F_WRLCK, 1, 1));
	CHECK(holder(line, F_WRLCK, 1, 1) == -1);
	CHECK(close(second) == 0 && lock_part(line, F_SETLK, F_UNLCK, 0, 0) == 0);
	CHECK(holder(line, F_WRLCK, 1, 1) == 0);

	/* What is no lock. */
	reader = open(LINE, O_RDONLY | O_NOCTTY);
	FAILS(EBADF, lock_part(reader, F_SETLK, F_WRLCK, 0, 1));
	FAILS(EINVAL, lock_part(line, F_SETLK, 7, 0, 1));
	FAILS(EINVAL, lock_part(line, F_SETLK, F_WRLCK, -1, 1));
	FAILS(EINVAL, lock_part(line, F_SETLK, F_WRLCK, 0, -1));
	CHECK(lock_part(line, F_SETLK, F_WRLCK, 4, -2) == 0);
	FAILS(EINVAL, lock_part(line, F_GETLK, F_UNLCK, 0, 1));
	FAILS(EFAULT, fcntl(line, F_SETLK, (void *)8));
	child = fork();
	if (child == 0) {
		CHECK(holder(line, F_WRLCK, 0, 0) == getppid());
		_exit(0);
	}
	CHECK(exits_with(child, 0));
	CHECK(close(reader) == 0);
}

/* Starts a child that locks the byte `own`, says that, and waits for the byte `wanted`. */
static pid_t fork_locker(int own, int wanted, int said)
{
	pid_t child = fork();

	if (child == 0) {
		CHECK(lock_part(line, F_SETLK, F_WRLCK, own, 1) == 0 && write(said, "x", 1) == 1);
		CHECK(lock_part(line, F_SETLKW, F_WRLCK, wanted, 1) == 0);
		_exit(0);
	}
	return child;
}

CASE(nobody_waits_for_who_waits_for_it)
{
	pid_t first, second;
	int said[2];
	char byte;

	CHECK(pipe(said) == 0 && lock_part(line, F_SETLK, F_WRLCK, 0, 1) == 0);
	/* The second one waits for the first one, and that one for this process. */
	first = fork_locker(1, 0, said[1]);
	CHECK(read(said[0], &byte, 1) == 1);
	second = fork_locker(2, 1, said[1]);
	CHECK(read(said[0], &byte, 1) == 1);
	usleep(300000);
	FAILS(EDEADLK, lock_part(line, F_SETLKW, F_WRLCK, 1, 1));
	FAILS(EDEADLK, lock_part(line, F_SETLKW, F_RDLCK, 2, 1));
	FAILS(EAGAIN, lock_part(line, F_SETLK, F_WRLCK, 2, 1));
	CHECK(lock_part(line, F_SETLK, F_UNLCK, 0, 1) == 0);
	CHECK(exits_with(first, 0) && exits_with(second, 0));
	CHECK(lock_part(line, F_SETLKW, F_WRLCK, 0, 5) == 0);
}

CASE(what_is_known_of_the_uart_is_told)
{
	struct serial_struct serial;
	struct serial_rs485 turned;
	int sent = 0;

	CHECK(ioctl(line, TIOCGSERIAL, &serial) == 0);
	SAY("type %d line %d port %x irq %d fifo %d base %d", serial.type, serial.line, serial.port,
	    serial.irq, serial.xmit_fifo_size, serial.baud_base);
	/* Bits above are the kernel's own, and differ from version to version. */
	SAY("flags %x delay %d wait %d", serial.flags & 0xffff, serial.close_delay,
	    serial.closing_wait);
	serial.closing_wait = 100;
	CHECK(ioctl(line, TIOCSSERIAL, &serial) == 0 && ioctl(line, TIOCGSERIAL, &serial) == 0);
	CHECK(serial.closing_wait == 100);
	serial.closing_wait = 3000;
	CHECK(ioctl(line, TIOCSSERIAL, &serial) == 0);
	/* Others wait so, too. */
	CHECK(seteuid(65534) == 0);
	serial.flags ^= ASYNC_LOW_LATENCY;
	CHECK(ioctl(line, TIOCSSERIAL, &serial) == 0);
	serial.flags ^= ASYNC_LOW_LATENCY;
	CHECK(ioctl(line, TIOCSSERIAL, &serial) == 0);
	serial.closing_wait = 0;
	FAILS(EPERM, ioctl(line, TIOCSSERIAL, &serial));
	serial.closing_wait = 3000;
	serial.close_delay++;
	FAILS(EPERM, ioctl(line, TIOCSSERIAL, &serial));
	CHECK(seteuid(0) == 0);
	memset(&turned, 0xff, sizeof(turned));
	CHECK(ioctl(line, TIOCGRS485, &turned) == 0);
	SAY("RS485 flags %x", turned.flags);
	turned.flags = SER_RS485_ENABLED;
	FAILS(ENOTTY, ioctl(line, TIOCSRS485, &turned));
	CHECK(tcdrain(line) == 0 && ioctl(line, TIOCSERGETLSR, &sent) == 0 && sent == TIOCSER_TEMT);
}

CASE(a_window_has_the_size_that_it_is_given)
{
	struct winsize size = { 24, 80, 1, 2 }, found;

	CHECK(ioctl(line, TIOCSWINSZ, &size) == 0 && ioctl(line, TIOCGWINSZ, &found) == 0);
	CHECK(found.ws_row == 24 && found.ws_col == 80 && found.ws_ypixel == 2);
	/* It goes with the last who has the line open. */
	CHECK(close(line) == 0);
	line = open(LINE, O_RDWR | O_NOCTTY);
	CHECK(ioctl(line, TIOCGWINSZ, &found) == 0 && found.ws_row == 0 && found.ws_col == 0);
}

CASE(a_line_begins_with_the_discipline_of_terminals)
{
	struct termios termios;

	CHECK(tcgetattr(line, &termios) == 0);
	termios.c_line = N_PPP;
	CHECK(tcsetattr(line, TCSANOW, &termios) == 0 && close(line) == 0);
	line = open(LINE, O_RDWR | O_NOCTTY);
	CHECK(tcgetattr(line, &termios) == 0 && termios.c_line == N_TTY);
}
