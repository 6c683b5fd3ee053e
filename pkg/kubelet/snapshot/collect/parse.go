package collect

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/openfile"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/shortcall"
)

// unlimited is the least limit that means none: the kernel rounds its maximum down to whole pages.
const unlimited = math.MaxInt64 / 2

// most is the largest plausible amount in bytes. It is far above the memory of any machine, and sums of a few such
// amounts do not overflow.
const most = 1 << 58

var errNoNumber = errors.New("not a number")

// parseCount reads a file that holds one number, or "max".
func parseCount(data []byte) (int64, error) {
	data = bytes.TrimSpace(data)
	if string(data) == "max" {
		return math.MaxInt64, nil
	}
	n, err := strconv.ParseUint(string(data), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%w: %.40q", errNoNumber, data)
	}
	return int64(min(n, math.MaxInt64)), nil
}

// field finds a line "key value" in a file such as memory.stat or, with a colon and a unit of kB, /proc/meminfo.
func field(data []byte, key string) (int64, bool) {
	for len(data) > 0 {
		line, rest, _ := bytes.Cut(data, []byte{'\n'})
		data = rest
		if value, found := valueOf(line, key); found {
			return amountOf(value)
		}
	}
	return 0, false
}

// valueOf returns what follows the key in a line "key value"; false if the line has another key.
func valueOf(line []byte, key string) (value []byte, found bool) {
	if len(line) <= len(key) || string(line[:len(key)]) != key || line[len(key)] != ' ' {
		return nil, false
	}
	return line[len(key):], true
}

// amountOf parses a number, which may have the unit kB (1,024 bytes). It returns false if there is none that is
// plausible.
func amountOf(value []byte) (int64, bool) {
	value, isKiB := bytes.CutSuffix(bytes.TrimSpace(value), []byte(" kB"))
	n, err := strconv.ParseUint(string(bytes.TrimSpace(value)), 10, 64)
	unit := uint64(1)
	if isKiB {
		unit = 1024
	}
	if err != nil || n > most/unit {
		return 0, false
	}
	return int64(n * unit), true
}

// files reads small files, which stay open, into one buffer, which it reuses. It is not safe for concurrent use.
type files struct {
	buffer []byte
	calls  shortcall.Calls
}

// read returns the content of a file, which is valid until the next call.
func (f *files) read(file *openfile.File) ([]byte, error) {
	if f.buffer == nil {
		f.buffer = make([]byte, 16<<10)
	}
	return file.ReadRecord(&f.buffer, &f.calls)
}

// count returns the number that a file has.
func (f *files) count(file *openfile.File) (int64, error) {
	data, err := f.read(file)
	if err != nil {
		return 0, err
	}
	return countOf(data, file.Path())
}

func countOf(data []byte, path string) (int64, error) {
	n, err := parseCount(data)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	return n, nil
}
