# For gdb: where the program is when it has come to an old address.
#
# Code that computes an address (a `goto` through a table of distances, say) may come to where the original's code stood. There gdb knows no function, and
# `next` ends. The signal that such a place raises leads on, but a step behind it would not end where it should. So this says what the place is, and `go-on`
# runs to where the code is now. It sets no `$pc`: the runtime may have to make memory accessible on the way.

python
class OldAddresses:
    # `.blizzard.info`: indices of its words (ModuleInfo of the crate blizzard-contract).
    CODES, CODE_BYTES, HEADS, COUNT, OLD_BASE, NEW_BASE, CODE = 7, 8, 9, 10, 11, 12, 13
    # Of the trap map: bytes of a head, and rows of a group.
    HEAD, GROUP = 12, 64
    # `int3`, and what stands for it in a process that gdb has started.
    TRAPS = (0xCC, 0x06)
    # The program has been stopped by the SIGTRAP of a trap byte, perhaps: it stands behind that.
    is_trapped = False

    def read(self, at, length):
        return bytes(gdb.selected_inferior().read_memory(at, length))

    def info(self, pc):
        """The words of the rewritten file that is mapped at `pc`, and how far it lies from its addresses."""
        table = libraries.mappings()
        path = next((path for start, end, _, path in table if start <= pc < end), None)
        if path is None or not libraries.is_rewritten(path):
            return None
        address, offset, length = libraries.section(path, b".blizzard.info")
        for start, end, at, name in table:
            if name == path and at <= offset < at + end - start:
                place = start + offset - at
                return struct.unpack(f"<{length // 8}Q", self.read(place, length // 8 * 8)), place - address
        return None

    def new(self, pc):
        """Where the code of an old address is now."""
        found = self.info(pc)
        if found is None or 0 <= pc - found[1] - found[0][self.CODE] < found[0][self.CODE + 1]:
            return None
        words, bias = found
        # Springboards lead there by jumps.
        for _ in range(8):
            code = self.read(pc, 5)
            if code[0] == 0xE9:
                return pc + 5 + struct.unpack_from("<i", code, 1)[0]
            if code[0] != 0xEB:
                break
            pc += 2 + struct.unpack_from("<b", code, 1)[0]
        wanted = pc - bias - words[self.OLD_BASE]
        groups = (words[self.COUNT] + self.GROUP - 1) // self.GROUP
        heads = struct.iter_unpack("<III", self.read(words[self.HEADS] + bias, groups * self.HEAD))
        before = [head for head in heads if head[0] <= wanted]
        if not before or code[0] not in self.TRAPS:
            return None
        old, new, at = before[-1]
        rest = words[self.CODE_BYTES] - at
        codes, at = self.read(words[self.CODES] + bias + at, min(rest, 9 * self.GROUP)), 0
        # The form is that of the crate's `trap_map.rs`.
        while old < wanted and at < len(codes):
            first, at = codes[at], at + 1
            if first == 0:
                (old, new), at = struct.unpack_from("<II", codes, at), at + 8
            elif first & 15:
                old, new = old + (first >> 4), new + (first & 15)
            else:
                old, new, at = old + (first >> 4), new + codes[at], at + 1
        return bias + words[self.NEW_BASE] + new if old == wanted else None

    def here(self):
        """Where the program goes on, if it stands at an old address, or behind the trap byte that has stopped it there."""
        try:
            frame = gdb.newest_frame()
            return None if frame.name() else self.new(frame.pc() - (1 if self.is_trapped else 0))
        except (gdb.error, gdb.MemoryError, struct.error, OSError):
            return None

    def was_int3(self):
        """Whether the last signal is that of an `int3`."""
        try:
            info = gdb.parse_and_eval("$_siginfo")
            return (int(info["si_signo"]), int(info["si_code"])) == (5, 0x80)
        except gdb.error:
            return False

    def tell(self, event):
        self.is_trapped = not isinstance(event, gdb.BreakpointEvent) and self.was_int3()
        if self.here() is not None:
            gdb.write("This is an old address of the program: `go-on` leads to where its code is now.\n")


class GoOn(gdb.Command):
    """Run from an old address of a rewritten program to where its code is now."""

    def __init__(self):
        super().__init__("go-on", gdb.COMMAND_RUNNING)

    def invoke(self, _argument, _from_terminal):
        new = old_addresses.here()
        if new is None:
            raise gdb.GdbError("This is no old address of a rewritten program.")
        gdb.Breakpoint(f"*{new:#x}", internal=True, temporary=True)
        if not old_addresses.is_trapped:
            gdb.execute("continue")
        # A debugger that was attached has taken the signal of the trap byte for its own.
        if old_addresses.is_trapped and old_addresses.here() == new:
            gdb.execute("signal SIGTRAP")


old_addresses = OldAddresses()
gdb.events.stop.connect(old_addresses.tell)
GoOn()
end
