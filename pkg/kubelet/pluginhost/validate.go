package pluginhost

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

const (
	// validationTimeout bounds the validation of a plugin.
	validationTimeout = 5 * time.Second
	// maxNameLength is the greatest length of a plugin's name, in bytes.
	maxNameLength = 63
	// eventRefused is the reason of the event on the Node about a plugin that was refused.
	eventRefused = "PluginRefused"
	// There are at most maxRefusalEvents events of refusals, and one more each refusalEventPeriod: a process can register
	// with another name each time. The recorder drops events about the Node after 25, whatever their reason.
	maxRefusalEvents   = 16
	refusalEventPeriod = 10 * time.Minute
)

// reason is why a plugin is refused: the label of the metric.
type reason string

const (
	unsupportedVersion reason = "UnsupportedVersion"
	invalidName        reason = "InvalidName"
	nameInTree         reason = "NameInTree"
	notEnabled         reason = "NotEnabled"
	invalidEndpoint    reason = "InvalidEndpoint"
	foreignOwner       reason = "ForeignOwner"
	noToken            reason = "NoToken"
	invalidToken       reason = "InvalidToken"
	notPermitted       reason = "NotPermitted"
	reviewFailed       reason = "ReviewFailed"
	noAnswer           reason = "NoAnswer"
	tooMany            reason = "TooManyPlugins"
	stopping           reason = "Stopping"
)

// refusal is the error for a plugin that is refused.
type refusal struct {
	reason  reason
	message string
}

func (r *refusal) Error() string { return r.message }

// ValidatePlugin returns the reason why a plugin is refused, nil if it is accepted. It takes at most 5 s. It is for
// stock's plugin manager.
func (h *Host) ValidatePlugin(name, endpoint string, versions []string) error {
	ctx, cancel := context.WithTimeout(context.Background(), validationTimeout)
	defer cancel()
	k := key{name, filepath.Clean(endpoint)}
	if refused := h.validate(ctx, k, versions); refused != nil {
		return h.refuse(k, refused)
	}
	return nil
}

func (h *Host) validate(ctx context.Context, k key, versions []string) *refusal {
	if !slices.Contains(versions, h.cfg.Version) {
		return &refusal{unsupportedVersion, fmt.Sprintf("the version %s is not among the supported versions of the plugin",
			h.cfg.Version)}
	}
	if refused := h.validateName(k); refused != nil {
		return refused
	}
	conn, err := h.dial(ctx, k.socket)
	if refused := (*refusal)(nil); errors.As(err, &refused) {
		return refused
	}
	if err != nil {
		return &refusal{invalidEndpoint, err.Error()}
	}
	_ = conn.Close()
	if h.tokenRequired() || h.cfg.Probe != nil {
		return h.validateCalls(ctx, k)
	}
	return nil
}

// validateCalls checks the token of a plugin that is not registered yet, and whether it answers, over a connection of
// its own.
func (h *Host) validateCalls(ctx context.Context, k key) *refusal {
	if refused := h.beginDisconnecting(k); refused != nil {
		return refused
	}
	defer h.disconnecting.Done()
	v := h.verification(k.name)
	conn, err := connect(k.socket, h.dial, v.required)
	if err != nil {
		return &refusal{invalidEndpoint, err.Error()}
	}
	defer h.disconnecting.Go(func() { _ = conn.Close() })
	if h.tokenRequired() {
		if refused := v.run(ctx, conn); refused != nil {
			return refused
		}
	}
	return h.probe(ctx, conn)
}

// probe returns why a plugin is refused that does not answer. Under the authentication Token the connection has been
// verified; a call over another one is rejected.
func (h *Host) probe(ctx context.Context, conn grpc.ClientConnInterface) *refusal {
	if h.cfg.Probe == nil {
		return nil
	}
	if err := h.cfg.Probe(ctx, observed{conn, &attempt{}}); err != nil {
		return &refusal{noAnswer, fmt.Sprintf("the plugin does not answer, for which it has %s: %v", validationTimeout, err)}
	}
	return nil
}

// beginDisconnecting has Close wait for a connection that will be closed, which takes seconds if the plugin does not
// read. It returns why no plugin can be validated any more.
func (h *Host) beginDisconnecting(k key) *refusal {
	h.mu.Lock()
	defer h.mu.Unlock()
	refused := h.full(k)
	if refused == nil {
		h.disconnecting.Add(1)
	}
	return refused
}

// validateName checks what depends on the name, and whether there is place for a plugin.
func (h *Host) validateName(k key) *refusal {
	if len(k.name) > maxNameLength {
		return &refusal{invalidName, fmt.Sprintf("the name has more than %d characters", maxNameLength)}
	}
	if faults := validation.IsQualifiedName(k.name); len(faults) > 0 {
		return &refusal{invalidName, "the name is not a qualified name: " + strings.Join(faults, "; ")}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.cfg.InTree(k.name):
		return &refusal{nameInTree, "the name belongs to a plugin in the kubelet"}
	case !h.cfg.Enabled(k.name):
		return &refusal{notEnabled, "the plugin is not enabled in the NodePressureConfiguration of this node"}
	default:
		return h.full(k)
	}
}

// refuse counts the refusal and returns it as an error. There is one event for a plugin and reason, until the plugin is
// registered: the plugin manager tries again and again. There is none while the kubelet stops, and none beyond the
// limit of events until there may be one again.
func (h *Host) refuse(k key, r *refusal) error {
	refusals.WithLabelValues(h.cfg.Type, string(r.reason)).Inc()
	k = key{shorten(k.name, maxNameLength+1), shorten(k.socket, maxEndpointText)}
	if h.isNew(k, r) {
		h.cfg.Recorder.Eventf(h.cfg.Node, v1.EventTypeWarning, eventRefused, "%s %q at %q is refused: %s", h.cfg.Type, k.name,
			k.socket, shorten(r.message, maxErrorText))
	}
	return r
}

// isNew records a refusal and returns whether it is to be an event: its reason differs from the one before, or that was
// beyond the limit of events. Nothing is new while the kubelet stops.
func (h *Host) isNew(k key, r *refusal) bool {
	now := h.cfg.Clock.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	last := h.forgetRefusal(k)
	reported := last != nil && last.reported && last.reason == r.reason
	report := !h.closed && !reported && h.events.TryAccept()
	h.refused = append(h.refused, Refusal{
		Name: k.name, Socket: k.socket, Message: shorten(r.message, maxErrorText), Time: now,
		reason: r.reason, reported: reported || report,
	})
	if excess := len(h.refused) - maxRefusals; excess > 0 {
		h.refused = slices.Delete(h.refused, 0, excess)
	}
	return report
}

// forgetRefusal removes the refusal of a plugin, and returns it if there was one.
func (h *Host) forgetRefusal(k key) *Refusal {
	i := slices.IndexFunc(h.refused, func(r Refusal) bool { return r.Name == k.name && r.Socket == k.socket })
	if i < 0 {
		return nil
	}
	last := h.refused[i]
	h.refused = slices.Delete(h.refused, i, i+1)
	return &last
}

// Refusal is the last refusal of a plugin that is not registered. Its texts are shortened.
type Refusal struct {
	Name, Socket, Message string
	Time                  time.Time
	reason                reason
	// reported is true if there was an event for this reason.
	reported bool
}

// Refusals returns the last refusals in the order of their times, at most 128.
func (h *Host) Refusals() []Refusal {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.refused)
}

// Bounds of texts in events and in the health of a plugin, in bytes.
const (
	maxEndpointText = 120 // a path of a socket is shorter
	maxErrorText    = 512
)

// shorten returns the beginning of a text. It does not keep the memory of a longer one.
func shorten(text string, length int) string {
	if len(text) <= length {
		return text
	}
	return strings.Clone(strings.ToValidUTF8(text[:length], ""))
}
