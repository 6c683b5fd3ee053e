package app

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/duration"
)

// plain returns a text that cannot change the terminal or the line: one with control or invisible characters, or such
// that change the direction of writing, is quoted.
func plain(text string) string {
	if quoted := strconv.Quote(text); quoted != `"`+text+`"` {
		return quoted
	}
	return text
}

// plainLines is plain for each line.
func plainLines(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		// Quotes and backslashes are harmless in sentences.
		if strings.ContainsFunc(lines[i], func(r rune) bool { return !strconv.IsPrint(r) }) {
			lines[i] = strconv.Quote(lines[i])
		}
	}
	return strings.Join(lines, "\n")
}

// isBytes reports whether amounts of a signal are bytes.
func isBytes(signal string) bool {
	return strings.HasSuffix(signal, ".available") && signal != "pid.available"
}

// amount returns an amount of a signal for people, rounded down to three digits or so.
func amount(signal string, n int64) string {
	if !isBytes(signal) {
		return strconv.FormatInt(n, 10)
	}
	sign, abs := "", uint64(n)
	if n < 0 {
		sign, abs = "-", uint64(-n)
	}
	units := []string{"", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"}
	i := 0
	for i+1 < len(units) && abs>>(10*(i+1)) >= 10 {
		i++
	}
	return fmt.Sprintf("%s%d%s", sign, abs>>(10*i), units[i])
}

// were counts things that something was done to.
func were(n int, thing string) string {
	if n == 1 {
		return "1 " + thing + " was"
	}
	return fmt.Sprintf("%d %ss were", n, thing)
}

func amountOf(signal string, n *int64) string {
	if n == nil {
		return ""
	}
	return amount(signal, *n)
}

// rate returns a growth in bytes per second, empty if it is 0.
func rate(perSecond float64) string {
	if perSecond < 1 {
		return ""
	}
	return amount("memory.available", int64(math.Min(perSecond, 1<<62))) + "/s"
}

// quantity returns an amount as one would write it in a manifest, rounded up.
func quantity(signal string, n int64) string {
	if !isBytes(signal) {
		return strconv.FormatInt(n, 10)
	}
	const mi = 1 << 20
	return resource.NewQuantity((n+mi-1)/mi*mi, resource.BinarySI).String()
}

func short(d time.Duration) string { return duration.HumanDuration(d) }

func since(t, now time.Time) string {
	if t.IsZero() {
		return ""
	}
	return short(now.Sub(t))
}

// resourceOf names the resource of a signal in a sentence.
func resourceOf(signal string) string {
	switch name, kind, _ := strings.Cut(signal, "."); name {
	case "memory":
		return "memory"
	case "allocatableMemory":
		return "memory for pods"
	case "pid":
		return "process IDs"
	case "nodefs", "imagefs", "containerfs":
		file := map[string]string{"nodefs": "the file system of the node", "imagefs": "the file system of images",
			"containerfs": "the file system of containers"}[name]
		if kind == "inodesFree" {
			return "inodes of " + file
		}
		return "space on " + file
	}
	return plain(signal)
}
