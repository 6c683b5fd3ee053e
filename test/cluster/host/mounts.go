package host

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// unmountRounds bounds how often the mount table is read again: mounts can be stacked, or appear while others are
// unmounted.
const unmountRounds = 5

// MountsUnder returns the mount points at and below dir, innermost first.
func MountsUnder(dir string) ([]string, error) {
	file, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("read mount table: %w", err)
	}
	defer file.Close()
	var found []string
	scanner := bufio.NewScanner(file)
	for scanner.Scan() {
		if point, ok := mountPoint(scanner.Text()); ok && within(point, dir) {
			found = append(found, point)
		}
	}
	if err := scanner.Err(); err != nil {
		return nil, fmt.Errorf("read mount table: %w", err)
	}
	// A later line covers an earlier one, and a child follows its parent.
	slices.Reverse(found)
	return found, nil
}

// UnmountUnder unmounts everything at and below dir. A busy mount is detached: it is removed from the tree now, and
// ends with its last user.
func UnmountUnder(dir string) error {
	for range unmountRounds {
		points, err := MountsUnder(dir)
		if err != nil {
			return err
		}
		if len(points) == 0 {
			return nil
		}
		for _, point := range points {
			if unix.Unmount(point, unix.UMOUNT_NOFOLLOW) != nil {
				// The next round reports what is left.
				_ = unix.Unmount(point, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
			}
		}
	}
	return checkNoMounts(dir)
}

// RemoveTree deletes dir and everything below it. It fails while anything is mounted there, so that the content of a
// volume is never deleted.
func RemoveTree(dir string) error {
	if err := checkNoMounts(dir); err != nil {
		return err
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove %s: %w", dir, err)
	}
	return nil
}

func checkNoMounts(dir string) error {
	points, err := MountsUnder(dir)
	if err != nil {
		return err
	}
	if len(points) == 0 {
		return nil
	}
	return errors.New("still mounted, so nothing below " + dir + " is deleted: " + strings.Join(points, ", "))
}

// mountPoint is the fifth field of a line of the mount table.
func mountPoint(line string) (string, bool) {
	fields := strings.Fields(line)
	if len(fields) < 5 {
		return "", false
	}
	return unescape(fields[4]), true
}

// unescape decodes \040 and the like, with which the kernel writes blanks.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var out strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if code, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				out.WriteByte(byte(code))
				i += 3
				continue
			}
		}
		out.WriteByte(s[i])
	}
	return out.String()
}

func within(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}
