"""Lists, inside gdb, the functions of this repository that a program has.

`cargo xtask walk` runs this script. Each line that it writes to the file named by WALK_OUTPUT is a function: its first
address, the address behind its last one, its name, its file and its line, separated by tabs.
"""

import os

import gdb

SOURCES = ("crates/", "tests/walk/")


def units():
    """The blocks of all compilation units that have functions of this repository."""
    blocks = {}
    file = ""
    for line in gdb.execute("info functions -q -n .", to_string=True).splitlines():
        if line.startswith("File "):
            file = line[len("File ") :].rstrip(":")
        elif file.startswith(SOURCES) and line.split(":")[0].isdigit():
            for place in gdb.decode_line(f"{file}:{line.split(':')[0]}")[1] or ():
                for block in (place.symtab.static_block(), place.symtab.global_block()):
                    blocks[(block.start, block.end, block.is_global)] = block
    return blocks.values()


def end_of(address):
    """The address behind the function that begins here."""
    block = gdb.block_for_pc(address)
    while block.function is None or block.start != address:
        block = block.superblock
    return block.end


def main():
    gdb.execute("set pagination off")
    with open(os.environ["WALK_OUTPUT"], "w", encoding="utf-8") as output:
        for unit in units():
            for symbol in unit:
                if symbol.is_function and symbol.symtab.filename.startswith(SOURCES):
                    address = int(symbol.value().address)
                    place = f"{symbol.symtab.filename}\t{symbol.line}"
                    output.write(f"{address}\t{end_of(address)}\t{symbol.name}\t{place}\n")


main()
