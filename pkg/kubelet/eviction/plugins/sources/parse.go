package sources

import (
	"bytes"
	"fmt"
	"strconv"
)

// most is the largest plausible amount. It is far above what any machine has, and sums of a few such amounts do not
// overflow.
const most = 1 << 58

// field returns the number in the line "key number" of a file such as memory.stat, and false if there is no such line,
// or if it has anything else. Of several lines, the first counts.
func field(data []byte, key string) (int64, bool) {
	value, found := valueOf(data, key)
	if !found {
		return 0, false
	}
	return number(value)
}

// valueOf returns what is after the key in the line "key value", and false if there is no such line.
func valueOf(data []byte, key string) ([]byte, bool) {
	for len(data) > 0 {
		line, rest, _ := bytes.Cut(data, []byte{'\n'})
		data = rest
		value, found := bytes.CutPrefix(line, []byte(key))
		if found && len(value) > 0 && value[0] == ' ' {
			return bytes.TrimLeft(value, " "), true
		}
	}
	return nil, false
}

// wholeLines returns the content of a file without a last line that does not end: the kernel ends each, so that a
// number in it may be cut.
func wholeLines(data []byte) []byte { return data[:bytes.LastIndexByte(data, '\n')+1] }

// number returns a number of decimal digits, and false for anything else.
func number(text []byte) (int64, bool) {
	n, err := strconv.ParseUint(string(text), 10, 64)
	if err != nil || n > most {
		return 0, false
	}
	return int64(n), true
}

// kilobytes returns the amount in bytes in the line "key: number kB" of /proc/meminfo.
func kilobytes(data []byte, key string) (int64, bool) {
	for len(data) > 0 {
		line, rest, _ := bytes.Cut(data, []byte{'\n'})
		data = rest
		value, found := bytes.CutPrefix(line, []byte(key+":"))
		if !found {
			continue
		}
		value, inKilobytes := bytes.CutSuffix(value, []byte(" kB"))
		n, ok := number(bytes.TrimLeft(value, " "))
		if !ok || !inKilobytes || n > most>>10 {
			return 0, false
		}
		return n << 10, true
	}
	return 0, false
}

// someAvg10 returns the share of the last ten seconds in percent in which some tasks were stalled, from a file of
// pressure stall information (kernel documentation, accounting/psi).
func someAvg10(data []byte) (float64, bool) {
	for len(data) > 0 {
		line, rest, _ := bytes.Cut(data, []byte{'\n'})
		data = rest
		value, found := bytes.CutPrefix(line, []byte("some avg10="))
		if !found {
			continue
		}
		value, _, more := bytes.Cut(value, []byte{' '})
		whole, fraction, hasFraction := bytes.Cut(value, []byte{'.'})
		n, ok := number(whole)
		hundredths, ok2 := number(fraction)
		if !more || !hasFraction || !ok || !ok2 || n > 100 || len(fraction) != 2 || n*100+hundredths > 100_00 {
			return 0, false
		}
		return float64(n*100+hundredths) / 100, true
	}
	return 0, false
}

// required returns an error if what a file must have was not found there.
func required(found bool, what string) error {
	if found {
		return nil
	}
	return fmt.Errorf("%w: %s is missing or broken", errUnexpected, what)
}
