package containerspec

import (
	"bytes"
	"errors"
	"fmt"
	"os/exec"
	"os/user"
	"strconv"
	"strings"

	"k8s.io/klog/v2"
)

const (
	// subordinateUser is the user whose subordinate IDs are for pods, also if the agent runs as another user.
	subordinateUser = "kubelet"
	// subordinateTool prints them: "getsubids [-g] USER".
	subordinateTool = "getsubids"
)

var errNoSubordinateIDs = errors.New("no subordinate IDs are configured")

// idTools finds subordinate IDs on the host; tests replace the functions.
type idTools struct {
	enabled    bool
	lookupUser func(name string) error
	lookPath   func(tool string) (string, error)
	run        func(path string, args ...string) ([]byte, error)
}

func hostIDTools(enabled bool) idTools {
	return idTools{
		enabled:    enabled,
		lookupUser: func(name string) error { _, err := user.Lookup(name); return err },
		lookPath:   exec.LookPath,
		run:        func(path string, args ...string) ([]byte, error) { return exec.Command(path, args...).Output() },
	}
}

// subordinateIDs returns first ID and number of IDs, or errNoSubordinateIDs. It looks the user up first, because the
// tool may query a remote service and has the same result for a missing entry and a failed query: if the user exists,
// the tool must succeed.
func subordinateIDs(logger klog.Logger, tools idTools) (first, length uint32, err error) {
	if !tools.enabled {
		return 0, 0, errNoSubordinateIDs
	}
	if err := tools.lookupUser(subordinateUser); err != nil {
		if unknown := user.UnknownUserError(""); errors.As(err, &unknown) {
			logger.V(5).Info("user namespaces: user not found, using default mappings", "user", subordinateUser)
			return 0, 0, errNoSubordinateIDs
		}
		return 0, 0, fmt.Errorf("looking up user %q: %w", subordinateUser, err)
	}
	path, err := tools.lookPath(subordinateTool)
	if errors.Is(err, exec.ErrNotFound) {
		logger.V(2).Info("user namespaces: executable not found, using default mappings", "executable", subordinateTool,
			"err", err)
		return 0, 0, errNoSubordinateIDs
	}
	if err != nil {
		return 0, 0, err
	}
	uids, err := tools.run(path, subordinateUser)
	if err != nil {
		return 0, 0, fmt.Errorf("error retrieving additional uids for user %q: %w", subordinateUser, err)
	}
	gids, err := tools.run(path, "-g", subordinateUser)
	if err != nil {
		return 0, 0, fmt.Errorf("error retrieving additional gids for user %q: %w", subordinateUser, err)
	}
	if !bytes.Equal(uids, gids) {
		return 0, 0, fmt.Errorf("mismatched subuids and subgids for user %q", subordinateUser)
	}
	logger.V(5).Info("user namespaces: user found, using mappings from getsubids", "user", subordinateUser)
	return parseSubordinateIDs(string(uids))
}

// parseSubordinateIDs reads the tool's output, which must be one line such as "0: kubelet 65536 2147483648".
func parseSubordinateIDs(output string) (first, length uint32, err error) {
	line := strings.Trim(output, "\n")
	if strings.Contains(line, "\n") {
		return 0, 0, fmt.Errorf("error parsing line %q: it must contain only one line", output)
	}
	fields := strings.Fields(line)
	if len(fields) != 4 {
		return 0, 0, fmt.Errorf("invalid line %q", output)
	}
	var numbers [2]uint32
	for i, text := range fields[2:] {
		number, err := strconv.ParseUint(text, 10, 32)
		if err != nil {
			return 0, 0, fmt.Errorf("error parsing line %q: %w", output, err)
		}
		numbers[i] = uint32(number)
	}
	return numbers[0], numbers[1], nil
}
