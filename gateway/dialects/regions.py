"""Where the regions of the clouds are: public facts, for clients that draw a map."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Region:
    """A region of a cloud, and its coordinates."""

    csp: str
    name: str
    display: str
    latitude: float
    longitude: float

    @property
    def connection(self) -> str:
        return f"{self.csp}-{self.name}"


# fmt: off
REGIONS: tuple[Region, ...] = (
    Region("aws",   "us-east-1",           "US East (N. Virginia)",      38.95,  -77.45),
    Region("aws",   "us-east-2",           "US East (Ohio)",             39.96,  -83.00),
    Region("aws",   "us-west-1",           "US West (N. California)",    37.35, -121.96),
    Region("aws",   "us-west-2",           "US West (Oregon)",           45.84, -119.70),
    Region("aws",   "ca-central-1",        "Canada (Montreal)",          45.50,  -73.60),
    Region("aws",   "sa-east-1",           "South America (Sao Paulo)", -23.55,  -46.63),
    Region("aws",   "eu-central-1",        "Europe (Frankfurt)",         50.11,    8.68),
    Region("aws",   "eu-west-1",           "Europe (Ireland)",           53.35,   -6.26),
    Region("aws",   "eu-west-2",           "Europe (London)",            51.51,   -0.13),
    Region("aws",   "eu-west-3",           "Europe (Paris)",             48.86,    2.35),
    Region("aws",   "eu-north-1",          "Europe (Stockholm)",         59.33,   18.07),
    Region("aws",   "eu-south-1",          "Europe (Milan)",             45.46,    9.19),
    Region("aws",   "ap-northeast-1",      "Asia Pacific (Tokyo)",       35.68,  139.69),
    Region("aws",   "ap-northeast-2",      "Asia Pacific (Seoul)",       37.57,  126.98),
    Region("aws",   "ap-northeast-3",      "Asia Pacific (Osaka)",       34.69,  135.50),
    Region("aws",   "ap-southeast-1",      "Asia Pacific (Singapore)",    1.35,  103.82),
    Region("aws",   "ap-southeast-2",      "Asia Pacific (Sydney)",     -33.87,  151.21),
    Region("aws",   "ap-south-1",          "Asia Pacific (Mumbai)",      19.08,   72.88),
    Region("aws",   "me-south-1",          "Middle East (Bahrain)",      26.07,   50.55),
    Region("aws",   "af-south-1",          "Africa (Cape Town)",        -33.92,   18.42),
    Region("azure", "eastus",              "East US (Virginia)",         37.37,  -79.82),
    Region("azure", "westus2",             "West US 2 (Washington)",     47.23, -119.85),
    Region("azure", "canadacentral",       "Canada Central (Toronto)",   43.65,  -79.38),
    Region("azure", "brazilsouth",         "Brazil South (Sao Paulo)",  -23.55,  -46.63),
    Region("azure", "northeurope",         "North Europe (Ireland)",     53.35,   -6.26),
    Region("azure", "westeurope",          "West Europe (Netherlands)",  52.37,    4.90),
    Region("azure", "germanywestcentral",  "Germany West (Frankfurt)",   50.11,    8.68),
    Region("azure", "uksouth",             "UK South (London)",          51.51,   -0.13),
    Region("azure", "francecentral",       "France Central (Paris)",     48.86,    2.35),
    Region("azure", "koreacentral",        "Korea Central (Seoul)",      37.57,  126.98),
    Region("azure", "japaneast",           "Japan East (Tokyo)",         35.68,  139.77),
    Region("azure", "southeastasia",       "Southeast Asia (Singapore)",  1.28,  103.83),
    Region("azure", "australiaeast",       "Australia East (Sydney)",   -33.86,  151.21),
    Region("azure", "centralindia",        "Central India (Pune)",       18.58,   73.92),
    Region("gcp",   "us-central1",         "Iowa",                       41.26,  -95.86),
    Region("gcp",   "us-east1",            "South Carolina",             33.20,  -80.01),
    Region("gcp",   "us-west1",            "Oregon",                     45.60, -121.18),
    Region("gcp",   "southamerica-east1",  "Sao Paulo",                 -23.55,  -46.63),
    Region("gcp",   "europe-west1",        "Belgium",                    50.45,    3.82),
    Region("gcp",   "europe-west2",        "London",                     51.51,   -0.13),
    Region("gcp",   "europe-west3",        "Frankfurt",                  50.11,    8.68),
    Region("gcp",   "europe-west4",        "Netherlands",                53.44,    6.84),
    Region("gcp",   "europe-north1",       "Finland",                    60.57,   27.19),
    Region("gcp",   "asia-northeast1",     "Tokyo",                      35.69,  139.69),
    Region("gcp",   "asia-northeast3",     "Seoul",                      37.57,  126.98),
    Region("gcp",   "asia-east1",          "Taiwan",                     24.05,  120.52),
    Region("gcp",   "asia-southeast1",     "Singapore",                   1.35,  103.82),
    Region("gcp",   "asia-south1",         "Mumbai",                     19.08,   72.88),
    Region("gcp",   "australia-southeast1", "Sydney",                   -33.87,  151.21),
)
# fmt: on
REGION_OF_PLACE = {(region.csp, region.name): region for region in REGIONS}
REGION_OF_CONNECTION = {region.connection: region for region in REGIONS}


def find_region(csp: str, name: str) -> Region:
    """Returns a region; one that is not in the table is drawn where the meridian meets the equator."""
    return REGION_OF_PLACE.get((csp, name), Region(csp, name, f"{csp} {name}", 0.0, 0.0))
