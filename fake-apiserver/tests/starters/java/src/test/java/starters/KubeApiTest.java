package starters;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.fabric8.kubeapitest.junit.EnableKubeAPIServer;
import io.fabric8.kubeapitest.junit.KubeConfig;
import io.fabric8.kubernetes.api.model.ConfigMapBuilder;
import io.fabric8.kubernetes.client.Config;
import io.fabric8.kubernetes.client.KubernetesClientBuilder;
import java.util.Map;
import org.junit.jupiter.api.Test;

@EnableKubeAPIServer
class KubeApiTest {
  @KubeConfig
  static String kubeconfig;

  @Test
  void anObjectIsStored() {
    try (var client = new KubernetesClientBuilder().withConfig(Config.fromKubeconfig(kubeconfig)).build()) {
      var map = new ConfigMapBuilder().withNewMetadata().withName("settings").withNamespace("default").endMetadata()
          .withData(Map.of("key", "value")).build();
      client.resource(map).create();
      assertEquals(Map.of("key", "value"), client.resource(map).get().getData());
    }
  }
}
