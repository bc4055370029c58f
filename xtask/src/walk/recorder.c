// Notes every function that a program built with `-Z instrument-mcount` enters between two marks.
//
// `cargo xtask walk` compiles this file, preloads it and reads the file that it writes: for each entry the number of words
// that follow, then the place inside the entered function, then the return addresses up the stack, innermost first. All
// places are counted from the start of the program's image.
#define _GNU_SOURCE
#include <link.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

// Room for one recording; what is not used costs nothing. A fuller one is reported by its length.
#define WORDS_MAX (64u << 20)
// How far up the stack a caller is looked for.
#define FRAMES_MAX 96
// Frames that are further apart than this are not frames of one stack.
#define STACK_BYTES_MAX (256u << 10)

static uint64_t words[WORDS_MAX];
static atomic_size_t used;
static atomic_int state; // 0: before the first mark, 1: recording, 2: after the second mark
// A function: its first address, and the address behind its last one.
struct mark {
    uintptr_t start, end;
};
static struct mark begin, end;
static uintptr_t base;
static const char *output;

static int first_object(struct dl_phdr_info *info, size_t size, void *unused) {
    (void)size, (void)unused;
    base = info->dlpi_addr;
    return 1;
}

// Reads `start-end`.
static struct mark mark_of(const char *variable) {
    char *rest = getenv(variable);
    struct mark mark = {0, 0};
    if (rest) mark.start = strtoull(rest, &rest, 10), mark.end = strtoull(rest + 1, NULL, 10);
    return mark;
}

__attribute__((constructor)) static void prepare(void) {
    output = getenv("WALK_OUTPUT");
    dl_iterate_phdr(first_object, NULL);
    begin = mark_of("WALK_BEGIN");
    end = mark_of("WALK_END");
}

static void write_out(void) {
    FILE *file = output ? fopen(output, "w") : NULL;
    size_t length = atomic_load(&used);
    if (!file || length > WORDS_MAX || fwrite(words, sizeof *words, length, file) != length || fclose(file)) {
        fputs("the recording cannot be written\n", stderr);
        abort();
    }
}

static int is_in(uintptr_t place, struct mark mark) { return place >= mark.start && place < mark.end; }

void mcount(void) {
    int now = atomic_load(&state);
    uintptr_t place = (uintptr_t)__builtin_return_address(0) - base;
    if (now == 0 && is_in(place, begin)) atomic_store(&state, 1);
    if (now != 1) return;
    if (is_in(place, end)) {
        atomic_store(&state, 2);
        write_out();
        return;
    }
    uint64_t frames[FRAMES_MAX + 2];
    size_t count = 1;
    frames[count++] = place;
    // The frame of the entered function: this function's own frame points to it.
    uintptr_t *frame = *(uintptr_t **)__builtin_frame_address(0);
    while (count < FRAMES_MAX) {
        uintptr_t *next = (uintptr_t *)frame[0];
        if (frame[1] < base) break;
        frames[count++] = frame[1] - base;
        if (next <= frame || (uintptr_t)next - (uintptr_t)frame > STACK_BYTES_MAX || (uintptr_t)next % 8) break;
        frame = next;
    }
    frames[0] = count - 1;
    size_t at = atomic_fetch_add(&used, count);
    for (size_t index = 0; index < count && at + index < WORDS_MAX; index++) words[at + index] = frames[index];
}
