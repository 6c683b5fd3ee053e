package app

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation/field"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/featuregate"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/component-base/version"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kubelet/app/options"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"

	"github.com/plimsoll-project/plimsoll/pkg/apis/pressure/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/pressureconfig"
)

// Settings are flags and files, merged and defaulted. Validate validates them.
type Settings struct {
	Flags  *options.KubeletFlags
	Config *kubeletconfig.KubeletConfiguration
	// FeatureGates are those of the process, set from Config.
	FeatureGates featuregate.MutableVersionedFeatureGate
	// FlagSet has the flags of the command line.
	FlagSet *pflag.FlagSet
	// SkippedDropIns are files in --config-dir that do not end in .conf.
	SkippedDropIns []string
	// Pressure is the NodePressureConfiguration.
	Pressure pressureconfig.Loaded
}

// settings merges files and flags. It sets the feature gates of the process twice, because the gates of the flags
// decide how files are defaulted, and files may set more.
func (l *commandLine) settings(
	ctx context.Context, gates featuregate.MutableVersionedFeatureGate,
) (*Settings, error) {
	s := &Settings{Flags: l.flags, Config: l.config, FeatureGates: gates, FlagSet: l.flagSet}
	if err := setGates(gates, s.Config.FeatureGates); err != nil {
		return nil, err
	}
	if err := options.ValidateKubeletFlags(s.Flags); err != nil {
		return nil, fmt.Errorf("--node-labels: %w", err)
	}
	if s.Flags.KubeletConfigFile == "" && s.Flags.KubeletDropinConfigDirectory == "" {
		return s, nil
	}
	if err := s.readFiles(ctx); err != nil {
		return nil, err
	}
	if err := l.applyFlags(s.Config); err != nil {
		return nil, err
	}
	return s, setGates(gates, s.Config.FeatureGates)
}

func (s *Settings) readFiles(ctx context.Context) error {
	if file := s.Flags.KubeletConfigFile; file != "" {
		config, err := loadConfigFile(ctx, file, s.FeatureGates)
		if err != nil {
			return fmt.Errorf("--config %s: %w", file, err)
		}
		s.Config = config
	}
	if dir := s.Flags.KubeletDropinConfigDirectory; dir != "" {
		skipped, err := mergeDropIns(s.Config, dir, s.FeatureGates)
		if err != nil {
			return fmt.Errorf("--config-dir %s: %w", dir, err)
		}
		s.SkippedDropIns = skipped
	}
	return nil
}

// readPressure reads the NodePressureConfiguration.
func (s *Settings) readPressure() error {
	root, err := filepath.Abs(s.Flags.RootDirectory)
	if err != nil {
		return fmt.Errorf("--root-dir %q: %w", s.Flags.RootDirectory, err)
	}
	kubelet := v1alpha1.Kubelet{RootDirectory: root}
	if !s.standalone() {
		if kubelet.Kubeconfig, err = filepath.Abs(s.Flags.KubeConfig); err != nil {
			return fmt.Errorf("--kubeconfig %q: %w", s.Flags.KubeConfig, err)
		}
	}
	s.Pressure, err = pressureconfig.LoadAtStart(os.LookupEnv, kubelet)
	return err
}

// startLogging applies the logging settings. It may be called once in a process.
func (s *Settings) startLogging() error {
	logs.InitLogs()
	if err := logsapi.ValidateAndApplyAsField(&s.Config.Logging, s.FeatureGates,
		field.NewPath("logging")); err != nil {
		return fmt.Errorf("initialize logging: %w", err)
	}
	return nil
}

// logSettings logs version, flags, configuration and warnings.
func (s *Settings) logSettings(ctx context.Context) {
	logger := klog.FromContext(ctx)
	cliflag.PrintFlags(s.FlagSet)
	logger.Info("Kubelet version", "kubeletVersion", version.Get())
	logger.Info("Golang settings", "GOGC", os.Getenv("GOGC"), "GOMAXPROCS", os.Getenv("GOMAXPROCS"),
		"GOTRACEBACK", os.Getenv("GOTRACEBACK"))
	for _, file := range s.SkippedDropIns {
		logger.V(4).Info("Skipped file in drop-in directory (does not have .conf extension)", "file", file)
	}
	logger.V(5).Info("KubeletConfiguration", "configuration", klog.Format(maskSecrets(s.Config)))
	for _, warning := range s.warnings() {
		logger.Info("Warning: " + warning)
	}
}

// maskSecrets returns a copy of the configuration without secrets.
func maskSecrets(config *kubeletconfig.KubeletConfiguration) *kubeletconfig.KubeletConfiguration {
	config = config.DeepCopy()
	for header := range maps.Keys(config.StaticPodURLHeader) {
		config.StaticPodURLHeader[header] = []string{"<masked>"}
	}
	return config
}
