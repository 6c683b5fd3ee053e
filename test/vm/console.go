package vm

import (
	"io"
	"os"
	"sync"
	"time"
)

// consolePoll is the time between two looks at the console's file.
const consolePoll = 200 * time.Millisecond

// followConsole copies what is written to the console's file to out, from its beginning. The function that it returns
// copies the rest and ends that. A nil out receives nothing.
func followConsole(path string, out io.Writer) (stop func()) {
	if out == nil {
		return func() {}
	}
	done := make(chan struct{})
	var copies sync.WaitGroup
	copies.Go(func() {
		var offset int64
		ticker := time.NewTicker(consolePoll)
		defer ticker.Stop()
		for {
			offset += copyFrom(path, offset, out)
			select {
			case <-done:
				copyFrom(path, offset, out)
				return
			case <-ticker.C:
			}
		}
	})
	return func() {
		close(done)
		copies.Wait()
	}
}

// copyFrom copies what the file has from offset on, and returns how much that is. A file that does not exist yet has
// nothing.
func copyFrom(path string, offset int64, out io.Writer) int64 {
	file, err := os.Open(path)
	if err != nil {
		return 0
	}
	defer file.Close()
	if _, err := file.Seek(offset, io.SeekStart); err != nil {
		return 0
	}
	copied, _ := io.Copy(out, file)
	return copied
}
