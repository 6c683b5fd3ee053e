package numa

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

const (
	// Emulator is the program that emulates the machine.
	Emulator = "qemu-system-x86_64"
	// nodeMebibytes is the memory of each NUMA node: more than the gibibyte that numa-memory-pressure adds to its
	// threshold where there is little page cache.
	nodeMebibytes = 1536
)

// Run boots a kernel in a machine with as many NUMA nodes as are named, each with a CPU and memory of its own. The
// first process is the program guest, linked statically. It returns the lines that this has written, and fails if it
// has not come to its end. Files are in dir.
func Run(ctx context.Context, kernel, guest string, nodes int, dir string) ([]Line, error) {
	disk, out := filepath.Join(dir, "initrd"), filepath.Join(dir, "lines")
	if err := writeArchive(disk, guest); err != nil {
		return nil, err
	}
	console := filepath.Join(dir, "console")
	args := []string{
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-machine", "q35",
		"-accel", "tcg,thread=multi,tb-size=1024", "-cpu", "max,-erms,-fsrm",
		"-smp", fmt.Sprintf("%[1]d,sockets=%[1]d", nodes), "-m", fmt.Sprint(nodes * nodeMebibytes),
		"-kernel", kernel, "-initrd", disk, "-append", "console=ttyS0 panic=-1 mitigations=off psi=1 rdinit=/init",
		"-serial", "file:" + console, "-serial", "file:" + out,
	}
	for n := range nodes {
		args = append(args, "-object", fmt.Sprintf("memory-backend-ram,id=m%d,size=%dM", n, nodeMebibytes),
			"-numa", fmt.Sprintf("node,nodeid=%[1]d,memdev=m%[1]d,cpus=%[1]d", n))
	}
	if text, err := exec.CommandContext(ctx, Emulator, args...).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("run the machine: %w: %s", err, text)
	}
	data, err := os.ReadFile(out)
	if err != nil {
		return nil, fmt.Errorf("read what the machine has written: %w", err)
	}
	lines, err := parse(data)
	if err != nil {
		text, _ := os.ReadFile(console) // The error of the machine says more than one of its console.
		return nil, fmt.Errorf("%w; end of its console: %s", err, text[max(0, len(text)-2000):])
	}
	return lines, nil
}

// parse parses lines up to the last one, which must say that the run is done.
func parse(data []byte) (lines []Line, err error) {
	scanner := bufio.NewScanner(bytes.NewReader(data))
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		var line Line
		if err := json.Unmarshal(scanner.Bytes(), &line); err != nil {
			return nil, fmt.Errorf("a line of the machine: %w", err)
		}
		if line.Error != "" {
			return nil, fmt.Errorf("in the machine: %s", line.Error)
		}
		if line.Done {
			return lines, nil
		}
		lines = append(lines, line)
	}
	return nil, errors.Join(scanner.Err(), errors.New("the machine has stopped early"))
}

// writeArchive writes an archive (initramfs, format newc) that has only the program init, and the folder and device
// that the kernel needs for the output of its first process.
func writeArchive(path, program string) error {
	data, err := os.ReadFile(program)
	if err != nil {
		return fmt.Errorf("read the first process: %w", err)
	}
	var archive bytes.Buffer
	for i, e := range []struct {
		name         string
		mode         uint32
		data         []byte
		major, minor int
	}{
		{"dev", 0o040755, nil, 0, 0}, {"dev/console", 0o020600, nil, 5, 1}, {"init", 0o100755, data, 0, 0},
		{"TRAILER!!!", 0, nil, 0, 0},
	} {
		fmt.Fprintf(&archive, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00", i+1, e.mode, 0, 0, 1, 0,
			len(e.data), 0, 0, e.major, e.minor, len(e.name)+1, 0, e.name)
		pad(&archive)
		archive.Write(e.data)
		pad(&archive)
	}
	if err := os.WriteFile(path, archive.Bytes(), 0o600); err != nil {
		return fmt.Errorf("write the archive: %w", err)
	}
	return nil
}

// pad adds zeros up to a multiple of 4 bytes.
func pad(b *bytes.Buffer) {
	for b.Len()%4 != 0 {
		b.WriteByte(0)
	}
}
