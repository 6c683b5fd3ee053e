package sources

import (
	"bytes"
	"strconv"
)

// most is the largest plausible amount. It is far above what any machine has, and sums of a few such amounts do not
// overflow.
const most = 1 << 58

// field returns the number in the line "key number" of a file such as memory.stat, and false if there is no such line,
// or if it has anything else. Of several lines, the first counts.
func field(data []byte, key string) (int64, bool) {
	for len(data) > 0 {
		line, rest, _ := bytes.Cut(data, []byte{'\n'})
		data = rest
		value, found := bytes.CutPrefix(line, []byte(key))
		if found && len(value) > 0 && value[0] == ' ' {
			return number(bytes.TrimLeft(value, " "))
		}
	}
	return 0, false
}

// number returns a number of decimal digits, and false for anything else.
func number(text []byte) (int64, bool) {
	n, err := strconv.ParseUint(string(text), 10, 64)
	if err != nil || n > most {
		return 0, false
	}
	return int64(n), true
}
