# For gdb, of `blizzard config --gdb`: the symbols and frames of rewritten libraries.
#
# A rewritten program's libraries are known to the dynamic loader, and so to gdb, by the names of the originals, which describe
# no new code. At each stop this looks for rewritten files among the mappings of the process, and adds their symbols.

python
import gdb
import os
import struct


class RewrittenLibraries:
    def __init__(self):
        self.rewritten = {}
        # Where each has been added, by its path.
        self.added = {}

    def is_rewritten(self, path):
        """Whether it is an ELF file with a section .blizzard.info."""
        if path not in self.rewritten:
            try:
                with open(path, "rb") as file:
                    self.rewritten[path] = self.has_section(file)
            except (OSError, struct.error):
                self.rewritten[path] = False
        return self.rewritten[path]

    def has_section(self, file):
        header = file.read(64)
        if header[:5] != b"\x7fELF\x02":
            return False
        (table,) = struct.unpack_from("<Q", header, 40)
        size, count, names = struct.unpack_from("<HHH", header, 58)
        file.seek(table + size * names)
        at, length = struct.unpack_from("<QQ", file.read(size), 24)
        file.seek(at)
        return b"\0.blizzard.info\0" in b"\0" + file.read(length)

    def look(self, _):
        pid = gdb.selected_inferior().pid
        try:
            with open("/proc/%d/maps" % pid) as maps:
                mappings = [line.split(None, 5) for line in maps.read().splitlines()]
        except OSError:
            # A core file, or another machine's process.
            return
        program = os.path.realpath(gdb.current_progspace().filename or "")
        for mapping in mappings:
            if len(mapping) < 6 or int(mapping[2], 16) != 0:
                continue
            path, start = mapping[5], int(mapping[0].split("-")[0], 16)
            if path == program or self.added.get(path) == start or not self.is_rewritten(path):
                continue
            if path in self.added:
                # An earlier run had it elsewhere.
                gdb.execute('remove-symbol-file "%s"' % path, False, True)
            self.added[path] = start
            gdb.execute('add-symbol-file "%s" -o %#x' % (path, start), False, True)


libraries = RewrittenLibraries()
gdb.events.stop.connect(libraries.look)
end
